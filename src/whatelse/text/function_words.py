"""Words that carry grammar or form, not findings: whatever they are beside, they say nothing about a patient.

They are kept out of the findings unless asked for (`build --function-words`): left in, they become reasons ("on", "by",
"###", "pmh") because writers differ in how much they use them, and records in how much is written.
"""

from __future__ import annotations

_GRAMMAR = """
a about above across after again against ago all almost along already also although always am among an and another any
anything are around as at away back be became because become becoming been before began being below between both but
by came can cannot come could did do does doing done down during each either else etc even ever every everything few
first for from further gave get gets getting give given go goes going gone got had has have having he her here hers
herself him himself his how however i if in instead into is it its itself just last later least let like likely made
make many may me might more most much must my myself near nearly next no nor not nothing now of off often on once one
ones only onto or other others our out over own per possibly put rather really said same saw second see seem seems
seen several she should since so some something somewhat soon still such take taken than that the their them
themselves then there these they thing things third this those though through throughout till to together too took
toward towards two under unless until unto up upon us usually very via was we well went were what whatever when where
whether which while who whom whose why will with within without would yet you your aren't can't couldn't didn't
doesn't don't hadn't hasn't haven't he's i'm i've isn't it's she's shouldn't that's wasn't weren't won't wouldn't
three four five six seven eight nine ten eleven twelve fifteen twenty thirty forty fifty hundred half dozen
"""
_FORM = """
approx approximately arrival arrived brought called c/o c/w cc ccl comes complains complaint complaining d/t dept
described describes details dx e/o ed emt er esp especially etc exam f/u feel feeling feels felt found h/o happened
hpi hx i.e incl including info information known md mr mrs ms note noted notes notice noticed np obtained occurred
patient patients pe per pmd pmh pmhx presented presenting presents provided pt pta pts r/o received recvd recd
regarding related return returned returns
reported reporting reports rn ros rx s/p said says seen sent since sts started starting states
stated stating sx sxs tell telling thinks thought told today tonight tx w w/ w/o want wanted wants yesterday left
right lt rt bilat bilateral l r side sides area areas am pm hour hours hr hrs min mins minute minutes sec secs second
seconds day days week weeks wk wks month months mo mos yr yrs year years old yo y/o yof yom time times morning
afternoon evening night noon midnight eve noc date jan feb mar apr may jun jul aug sep sept oct nov dec monday tuesday
wednesday thursday friday saturday sunday
"""
# Verbs and nouns of reporting, people who were there, and ordinary words of any account.
_ACCOUNT = """
able accidentally accidently according accordingly additional addl addtl admin advised affected afterwards alone alot
apparently appearance appeared appears applied appropriate appt aspect assoc associated attempt attempted attempting
available aware backward backwards base beginning believed bib bibems big bit bottom brief bring brother brothers bwd
call caregiver case cause caused causing center cents certain changed changing characterized checked child children
clinic close cm coming complete completed completely con concerned condition conf confirmed consistent consisting cont
contact contacted continued continues couple course cousin currently dad daughter determined dev'd devel developed
developing devt diameter different directly dollar dose doses due earlier early end entire eval evaluated event events
eventually examined exhibited exp experienced experiencing extended extent family fast father fine follow followed
following form former forward friend friends front full func fwd general gf giving good grandma grandmother greater
group groups happen held help helped helping high highest hlth hold holding home husband immed immediate immediately
inch inches included indicated initial initially inside instructed involved keep kept large larger lasted lasting late
little location long look looked looking lot lots low main making manner measured med medical meds mid middle mm mom
moms mother move moved moving mult multi multiple nearby needed new nite notified nurse observed occasional occured
occurring ofc offered office onset open opening ordered otherwise outside overnoc parent parents part pending period
persisted person phone phoned physician piece placed position poss possible presence present prev previous previously
primarily prior probably problem problems produced progressed putting px quarter rate rcvd reaching receiving
recommended record recv referred regular remain remained reporter requested required rest result resulted results
returning revealed room s'd s/s sat secondary seemed self series sev shortly showed shown sided similar sister sit
size sized sl slightly small someone son sons spoke stand state stayed stood stop stopped stuck subsequent
subsequently suddenly suffered surface surrounding sust sustained sustaining t'd taking talked therapy thereafter
thick thru top total tr transferred transported treat treated treating treatment tried trying turn turned type
underneath unk unknown unspecified use used using usual visit visited way wearing whole wife worked working wrong yest
ytd
"""
FUNCTION_WORDS = frozenset(f"{_GRAMMAR} {_FORM} {_ACCOUNT}".split())


def says_nothing(word: str) -> bool:
    """Whether a word, joined (`of_the`) or not, negated (`neg:`) or not, is nothing but such words and numbers.

    So are single letters and words that begin with a number ("#cm", "##aug", "x#").
    """
    return all(map(_is_form, word.removeprefix("neg:").split("_")))


def _is_form(part: str) -> bool:
    if part in FUNCTION_WORDS or len(part) < 2 or part.startswith(("#", "x#")):
        return True
    return not any(map(str.isalpha, part))

"""Connection to an EHR: CDS Hooks and SMART launches."""

"""The shipped definitions: `emergency.yaml`, read by `AnchorSet.shipped()`."""

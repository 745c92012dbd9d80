"""Files of a table written anew: small ones together, deletes in another form, manifests by partition."""

// Package certificates has what the node API shows its clients: certificates from files that are
// read again when they change, self-signed ones of our own, or those that the API server signs.
package certificates

// Package certificates provides the node API's serving certificate: from files that are read again
// when they change, self-signed, or signed by the API server.
package certificates

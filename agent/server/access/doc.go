// Package access says who may ask the node API what. A request is one about the node: its path
// says about which subresources of nodes/NAME, its method with which verb. Who asks is told by a
// client certificate, by a token that the API server reviews, or by nothing, if the configuration
// lets strangers ask; whether he may is the API server's to say (SubjectAccessReview), or nobody's.
package access

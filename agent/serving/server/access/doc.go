// Package access decides who may send which request to the node API. A request is about the node:
// its path gives the subresources of nodes/NAME, its method the verb. The user comes from a client
// certificate or from a token that the API server reviews; without either it is anonymous, if the
// configuration allows that. The API server decides whether the user may do it
// (SubjectAccessReview), unless everything is allowed (AlwaysAllow).
package access

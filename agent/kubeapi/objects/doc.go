// Package objects has what pods are made of at the API server: the config maps and secrets that
// they name, tokens of their service accounts, certificates, trust anchors, claims, runtime classes,
// and the services that their environment tells of.
//
// A config map or a secret is followed from when the first pod of this node asks for it until the
// last one is released, by one watch for all of them, as the Node authorizer allows it. One that is
// immutable is not followed any longer once it is known. With the strategies Cache and Get there is
// no watch: the object is read again from time to time, with Get also whenever a pod asks.
//
// Who asks waits, with a bound, until the object is known for the first time; from then on the
// answer is there. A pod that was told of an object, or that it is missing, is named to
// Config.Changed when that is no longer true.
//
// Expected does the same for pods that wait for admission, of what they cannot start without: it says
// what is known, and waits for nothing.
//
// A token is asked for when a pod needs it, kept in memory only, replaced when it has passed 80 %
// of its life or 24 hours, and forgotten with its pod.
//
// Of a claim and of what it is bound to nothing tells: they are read each time. The key of a
// certificate is made here, a signer is asked for the certificate, and asked again in time; who asks
// waits a moment for it and comes again.
package objects

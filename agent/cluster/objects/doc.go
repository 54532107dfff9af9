// Package objects holds what pods need from the API server: the config maps and secrets that they
// name, tokens of their service accounts, certificates, trust anchors, claims, runtime classes, and
// the services in their environment.
//
// A config map or secret is followed from the first pod of this node that asks for it until the
// last one is released, by one watch, as the Node authorizer allows. An immutable object is no
// longer followed once it is known. With the strategies Cache and Get there is no watch: the object
// is read again from time to time, with Get also whenever a pod asks.
//
// A caller waits, with a bound, until the object is known for the first time. If a pod was given an
// object, or the answer that there is none, and this changes, the pod is named to Config.Changed.
//
// Expected does the same for what pods that wait for admission cannot start without: it says what
// is known, and does not wait.
//
// A token is requested when a pod needs it, kept in memory only, replaced after 80 % of its life or
// 24 hours, and forgotten with its pod.
//
// Nothing announces changes of claims and their volumes: they are read each time. The key of a
// certificate is made here; a signer is asked for the certificate, and asked again in time. The
// caller waits a moment for it and asks again.
package objects

// Package needs knows what pods that wait for admission cannot start without: config maps, secrets
// and claims at the API server. Admission asks it without waiting, reserves nothing for a pod while
// something is missing, and hears when that changes.
//
// agent/cluster/objects follows config maps and secrets, with one watch for all pods that need one.
// Nothing announces changes of claims: a goroutine for each pod with claims reads them until they
// are good, and at once when a volume that the pod waits for may be attached.
package needs

// Package needs knows what pods that wait for admission cannot start without: config maps, secrets
// and PVCs at the API server. Admission asks it without waiting, reserves nothing for a pod while
// something is missing, and hears when that changes.
//
// agent/cluster/objects follows config maps and secrets, with one watch for all pods that need one.
// Nothing announces changes of PVCs: a goroutine for each pod with PVCs reads them until they
// are good, and at once when a volume that the pod waits for may be attached.
package needs

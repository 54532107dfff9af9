// Package needs knows of pods that wait for admission what they cannot start without: config maps,
// secrets and claims of the API server. Admission asks it without waiting, gives a pod nothing of
// the node as long as something is missing, and is told when the answer is another one.
//
// Config maps and secrets are followed by agent/kubeapi/objects, by one watch for all who need one.
// Nobody tells of claims: a goroutine for each pod that has some reads them until they are good.
package needs

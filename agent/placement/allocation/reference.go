package allocation

import v1 "k8s.io/api/core/v1"

// Reference returns a pod with the UID, namespace and name.
func (p Pod) Reference() *v1.Pod {
	pod := &v1.Pod{}
	pod.UID, pod.Namespace, pod.Name = p.UID, p.Namespace, p.Name
	return pod
}

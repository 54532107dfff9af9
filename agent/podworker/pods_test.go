package podworker

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// makePod makes a pod from a line such as "Always init1 side1+ | web db": policy, init
// containers (+: sidecar), a bar, regular containers. Without a bar all are regular.
func makePod(line string) *v1.Pod {
	policy, rest, _ := strings.Cut(line, " ")
	inits, regular, found := strings.Cut(rest, "|")
	if !found {
		inits, regular = "", rest
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: types.UID("uid")},
		Spec: v1.PodSpec{
			RestartPolicy:                 v1.RestartPolicy(policy),
			TerminationGracePeriodSeconds: ptr.To(int64(30)),
		},
	}
	for _, name := range strings.Fields(inits) {
		c := v1.Container{Name: strings.TrimSuffix(name, "+"), Image: "img"}
		if strings.HasSuffix(name, "+") {
			c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	for _, name := range strings.Fields(regular) {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: name, Image: "img"})
	}
	return pod
}

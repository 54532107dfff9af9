package cluster_test

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/internal/lab/crisim"
)

// killedOnce is what the simulated runtime is told of a container that exits once with 0 although the
// kernel killed a process of it.
const killedOnce = exitsOnce + "0 reason=OOMKilled"

// killedVariants are those of containers that exit with 0 although the kernel killed a process of theirs:
// what the runtime says beside the exit code decides for an init container.
func killedVariants() []variant {
	init := func(name, script string, set func(*v1.Container)) variant {
		return variant{name: name, set: func(p *v1.Pod) {
			c := v1.Container{Name: name, Image: doneImage}
			set(&c)
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
			p.Annotations[crisim.AnnotationPrefix+name] = script
		}}
	}
	rule := v1.ContainerRestartRule{Action: v1.ContainerRestartRuleActionRestart,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
			Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{0}}}
	return []variant{
		{name: "killed", set: func(p *v1.Pod) { exits(p, "0 reason=OOMKilled") }},
		// Late: when all of its pod begins anew once, at the exit of another, that is over on both sides.
		init(sidecarKilled, "after=6s attempts=1 exit=0 reason=OOMKilled", func(c *v1.Container) {
			c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
		}),
		init(initKilled, killedOnce+" then=0", func(*v1.Container) {}),
		init("init-killed-rule", killedOnce+" then=0", func(c *v1.Container) {
			c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyNever)
			c.RestartPolicyRules = []v1.ContainerRestartRule{rule}
		}),
	}
}

// sidecarKilled is the variant of a sidecar that exits once.
const sidecarKilled = "sidecar-killed"

// initKilled is the variant of an init container whose pod says whether it starts again.
const initKilled = "init-killed"

// losesSandbox reports whether the kubelet ends all of the pod because of its init container, whose
// exit code alone says that it succeeded: under OnFailure it then begins in another sandbox.
func losesSandbox(pod *v1.Pod) bool {
	return pod.Spec.RestartPolicy != v1.RestartPolicyAlways &&
		slices.ContainsFunc(pod.Spec.InitContainers,
			func(c v1.Container) bool { return c.Name == initKilled })
}

// hangs reports whether the kubelet leaves the pod as it is for ever, with nothing of it running.
func hangs(pod *v1.Pod) bool {
	return losesSandbox(pod) && pod.Spec.RestartPolicy == v1.RestartPolicyNever
}

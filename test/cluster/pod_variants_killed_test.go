package cluster_test

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
)

// killedOnce is the script of a container that exits once with 0 although the kernel killed one of
// its processes.
const killedOnce = exitsOnce + "0 reason=OOMKilled"

// killedVariants have containers that exit with 0 although the kernel killed one of their
// processes: for an init container the runtime's reason decides, not the exit code.
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
		// Late: if another container's exit restarts the whole pod once, that is over on both
		// nodes.
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

// sidecarKilled is the variant with a sidecar that exits once.
const sidecarKilled = "sidecar-killed"

// initKilled is the variant with an init container; the pod's policy decides whether it starts
// again.
const initKilled = "init-killed"

// losesSandbox reports whether the kubelet ends the whole pod because of its init container, which
// succeeded by its exit code: under OnFailure the pod then starts in another sandbox.
func losesSandbox(pod *v1.Pod) bool {
	return pod.Spec.RestartPolicy != v1.RestartPolicyAlways &&
		slices.ContainsFunc(pod.Spec.InitContainers,
			func(c v1.Container) bool { return c.Name == initKilled })
}

// hangs reports whether the kubelet leaves the pod for ever with nothing running.
func hangs(pod *v1.Pod) bool {
	return losesSandbox(pod) && pod.Spec.RestartPolicy == v1.RestartPolicyNever
}

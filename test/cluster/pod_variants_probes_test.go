package cluster_test

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/internal/podtest"
)

// lifecycle returns a container's lifecycle; it creates it if need be.
func lifecycle(c *v1.Container) *v1.Lifecycle {
	if c.Lifecycle == nil {
		c.Lifecycle = &v1.Lifecycle{}
	}
	return c.Lifecycle
}

// asking makes variants with an HTTP request to the probe server of the pod's node, at port. At the
// address of all nodes there are a server that hands requests on to these, at relay, and a gRPC health
// server with TLS, at health.
type asking struct{ port, relay, health int }

func (a asking) get(p *v1.Pod, path string) *v1.HTTPGetAction {
	return &v1.HTTPGetAction{Host: sideAddress, Port: intstr.FromInt(a.port), Path: path + p.Name}
}

// ready makes a variant of a readiness probe.
func (a asking) ready(name string, probe func(p *v1.Pod) v1.ProbeHandler) variant {
	return variant{name: name, set: func(p *v1.Pod) {
		p.Spec.Containers[0].ReadinessProbe = often(probe(p))
	}}
}

// often returns a probe with a period of 1 s and thresholds of 1.
func often(handler v1.ProbeHandler) *v1.Probe {
	return &v1.Probe{ProbeHandler: handler, PeriodSeconds: 1, FailureThreshold: 1}
}

// web makes a variant of an HTTP readiness probe.
func (a asking) web(name, path string, set func(*v1.HTTPGetAction)) variant {
	return a.ready(name, func(p *v1.Pod) v1.ProbeHandler {
		get := a.get(p, path)
		set(get)
		return v1.ProbeHandler{HTTPGet: get}
	})
}

func commanded(words ...string) v1.ProbeHandler {
	return v1.ProbeHandler{Exec: &v1.ExecAction{Command: words}}
}

// probeVariants have probes.
func (a asking) probeVariants() []variant {
	tcp := func(port int) func(*v1.Pod) v1.ProbeHandler {
		return func(*v1.Pod) v1.ProbeHandler {
			return v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Host: sideAddress,
				Port: intstr.FromInt(port)}}
		}
	}
	return []variant{
		a.web("ready-http", "/ok/", func(g *v1.HTTPGetAction) {}),
		a.web("ready-http-fails", "/fails/", func(g *v1.HTTPGetAction) {}),
		a.web("ready-http-elsewhere", "/elsewhere/", func(g *v1.HTTPGetAction) {}),
		a.web("ready-https", "/ok/", func(g *v1.HTTPGetAction) { g.Scheme = v1.URISchemeHTTPS }),
		a.web("ready-http-headers", "/ok/", func(g *v1.HTTPGetAction) {
			g.Path += "?a=b c&d=%2f#e"
			g.HTTPHeaders = []v1.HTTPHeader{{Name: "Host", Value: "h.example.com"},
				{Name: "x-a", Value: "1"}, {Name: "X-A", Value: "2"}, {Name: "Accept"},
				{Name: "User-Agent", Value: "me"}}
		}),
		a.ready("ready-tcp", tcp(a.port)),
		a.ready("ready-tcp-refused", tcp(1)),
		a.ready("ready-command", func(*v1.Pod) v1.ProbeHandler { return commanded("true") }),
		a.ready("ready-command-fails", func(*v1.Pod) v1.ProbeHandler { return commanded("false") }),
		{name: "ready-patiently", set: func(p *v1.Pod) {
			probe := often(v1.ProbeHandler{HTTPGet: a.get(p, "/ok/")})
			probe.SuccessThreshold, probe.TimeoutSeconds = 2, 2
			p.Spec.Containers[0].ReadinessProbe = probe
		}},
		a.ready("ready-grpc-refused", func(*v1.Pod) v1.ProbeHandler {
			return v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: 1, Service: ptr.To("s")}}
		}),
		main("live-grace", func(c *v1.Container) {
			c.LivenessProbe = often(commanded("true"))
			c.LivenessProbe.TerminationGracePeriodSeconds = ptr.To(int64(7))
		}),
		{name: "live-once", set: func(p *v1.Pod) {
			c := &p.Spec.Containers[0]
			c.LivenessProbe = often(v1.ProbeHandler{HTTPGet: a.get(p, onceFails)})
			c.LivenessProbe.InitialDelaySeconds = 3 // not in pods that end by themselves
		}},
		{name: "starts", set: func(p *v1.Pod) {
			p.Spec.Containers[0].StartupProbe = often(v1.ProbeHandler{HTTPGet: a.get(p, "/ok/")})
		}},
		main("starts-slowly", func(c *v1.Container) {
			c.StartupProbe = often(commanded("false"))
			c.StartupProbe.FailureThreshold = 1000
		}),
		whole("gated", func(s *v1.PodSpec) {
			s.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/gate"}}
		}),
	}
}

// hookVariants have hooks and signals.
func (a asking) hookVariants() []variant {
	posted := func(name, path string, set func(*v1.HTTPGetAction)) variant {
		return variant{name: name, set: func(p *v1.Pod) {
			get := a.get(p, path)
			set(get)
			lifecycle(&p.Spec.Containers[0]).PostStart = &v1.LifecycleHandler{HTTPGet: get}
		}}
	}
	return []variant{
		main("post-start", func(c *v1.Container) {
			lifecycle(c).PostStart = &v1.LifecycleHandler{
				Exec: &v1.ExecAction{Command: []string{"true"}}}
		}),
		main("post-start-sleeps", func(c *v1.Container) {
			lifecycle(c).PostStart = &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 1}}
		}),
		posted("post-start-http", "/fails/", func(g *v1.HTTPGetAction) {
			g.HTTPHeaders = []v1.HTTPHeader{{Name: "Authorization", Value: "x"}}
		}),
		posted("post-start-https", "/ok/", func(g *v1.HTTPGetAction) {
			g.Scheme = v1.URISchemeHTTPS
			g.HTTPHeaders = []v1.HTTPHeader{{Name: "Authorization", Value: "x"},
				{Name: "X-B", Value: "y"}}
		}),
		{name: "post-start-once", set: func(p *v1.Pod) {
			lifecycle(&p.Spec.Containers[0]).PostStart = &v1.LifecycleHandler{
				HTTPGet: a.get(p, onceGarbles)}
		}},
		{name: "stop-signal", set: func(p *v1.Pod) {
			p.Spec.OS = &v1.PodOS{Name: v1.Linux}
			lifecycle(&p.Spec.Containers[0]).StopSignal = ptr.To(v1.SIGUSR1)
		}},
	}
}

// The server's answers make a container end once.
const onceFails, onceGarbles = "/once-fails/", "/once-garbles/"

// exitsOnce begins the script of a container that exits once; the code follows.
const exitsOnce = "after=1s attempts=1 exit="

// exits makes the first container exit once with a code; restarted, it keeps running.
func exits(p *v1.Pod, code string) *v1.Container {
	p.Annotations[crisim.AnnotationPrefix+"main"] = exitsOnce + code
	return &p.Spec.Containers[0]
}

// ends reports whether the first container ends at least once. If two variants set its hook or its
// probe, the later counts.
func ends(p *v1.Pod) bool {
	c := p.Spec.Containers[0]
	asks := func(get *v1.HTTPGetAction, path string) bool {
		return get != nil && strings.HasPrefix(get.Path, path)
	}
	return strings.HasPrefix(p.Annotations[crisim.AnnotationPrefix+"main"], exitsOnce) ||
		c.LivenessProbe != nil && asks(c.LivenessProbe.HTTPGet, onceFails) ||
		c.Lifecycle != nil && c.Lifecycle.PostStart != nil &&
			asks(c.Lifecycle.PostStart.HTTPGet, onceGarbles)
}

// isSettled reports whether the pod has ended, or has reached the state of its variants: containers
// have ended, additions exist. A pod whose containers cannot be created is settled, too.
func isSettled(pod *v1.Pod) bool {
	settled := len(pod.Status.EphemeralContainerStatuses) == len(pod.Spec.EphemeralContainers)
	for _, c := range slices.Concat(statuses(pod), pod.Status.EphemeralContainerStatuses) {
		if w := c.State.Waiting; w != nil && !isOnItsWay(w.Reason) {
			return true
		}
		if c.Name == "main" && ends(pod) || c.Name == sidecarKilled {
			settled = settled && (c.State.Terminated != nil || c.LastTerminationState.Terminated != nil)
		}
	}
	return settled || isOver(pod)
}

// restartVariants have rules for restarts of single containers.
func restartVariants() []variant {
	own := func(name, code string, policy v1.ContainerRestartPolicy,
		rules ...v1.ContainerRestartRule) variant {
		return variant{name: name, set: func(p *v1.Pod) {
			c := exits(p, code)
			c.RestartPolicy, c.RestartPolicyRules = ptr.To(policy), rules
		}}
	}
	rule := func(do v1.ContainerRestartRuleAction, op v1.ContainerRestartRuleOnExitCodesOperator,
	) v1.ContainerRestartRule {
		return v1.ContainerRestartRule{Action: do, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
			Operator: op, Values: []int32{7, 8}}}
	}
	again, all := v1.ContainerRestartRuleActionRestart,
		v1.ContainerRestartRuleActionRestartAllContainers
	in, notIn := v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn
	return []variant{
		own("never", "1", v1.ContainerRestartPolicyNever),
		own("on-failure", "1", v1.ContainerRestartPolicyOnFailure),
		own("on-no-failure", "0", v1.ContainerRestartPolicyOnFailure),
		own("always", "0", v1.ContainerRestartPolicyAlways),
		own("rule", "7", v1.ContainerRestartPolicyNever, rule(again, in)),
		own("rule-of-others", "7", v1.ContainerRestartPolicyNever, rule(again, notIn)),
		own("rule-not", "6", v1.ContainerRestartPolicyNever, rule(again, notIn)),
		own("rule-all", "8", v1.ContainerRestartPolicyNever, rule(all, in)),
		whole("init-rule", func(s *v1.PodSpec) {
			s.InitContainers = append(s.InitContainers, v1.Container{Name: "ruled", Image: doneImage,
				RestartPolicy:      ptr.To(v1.ContainerRestartPolicyNever),
				RestartPolicyRules: []v1.ContainerRestartRule{rule(again, in)}})
		}),
		whole("pod-never", func(s *v1.PodSpec) { s.RestartPolicy = v1.RestartPolicyNever }),
		whole("pod-on-failure", func(s *v1.PodSpec) { s.RestartPolicy = v1.RestartPolicyOnFailure }),
	}
}

// addedVariants have ephemeral containers and huge pages.
func addedVariants() []variant {
	ephemeral := func(name string, set func(*v1.EphemeralContainer)) variant {
		return whole(name, func(s *v1.PodSpec) {
			c := v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{
				Name: name, Image: rootImage}}
			set(&c)
			s.EphemeralContainers = append(s.EphemeralContainers, c)
		})
	}
	huge := variant{name: "huge-pages", set: func(p *v1.Pod) {
		c := &p.Spec.Containers[0]
		c.Resources.Limits = podtest.Amounts("cpu=30m memory=64Mi")
		c.Resources.Limits["hugepages-2Mi"] = resource.MustParse("4Mi")
		mounted("", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{
			Medium: "HugePages-2Mi"}}, v1.VolumeMount{}).set(p)
	}}
	return []variant{
		ephemeral("debug", func(c *v1.EphemeralContainer) { c.TTY, c.Stdin = true, true }),
		ephemeral("debug-user", func(c *v1.EphemeralContainer) {
			c.Image = userImage
			c.SecurityContext = &v1.SecurityContext{
				Capabilities: &v1.Capabilities{Add: []v1.Capability{"SYS_PTRACE"}}}
		}),
		ephemeral("debug-ends", func(c *v1.EphemeralContainer) { c.Image = doneImage }),
		ephemeral("debug-words", func(c *v1.EphemeralContainer) {
			c.Command, c.Args, c.WorkingDir = []string{"sleep"}, []string{"$(T)"}, "/w"
			c.Env = []v1.EnvVar{{Name: "T", Value: "1d"}}
			c.TerminationMessagePath = "/words"
			c.TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError
		}),
		ephemeral("debug-target", func(c *v1.EphemeralContainer) { c.TargetContainerName = "main" }),
		huge.asRefused(),
	}
}

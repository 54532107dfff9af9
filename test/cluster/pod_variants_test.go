package cluster_test

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/internal/podtest"
)

// variant is a change to an ordinary pod. Pods combine variants; the API server rejects a few
// combinations.
type variant struct {
	name string
	set  func(*v1.Pod)
	// refused: nodes refuse such a pod.
	refused bool
}

// asRefused returns the variant as one that nodes refuse.
func (t variant) asRefused() variant {
	t.refused = true
	return t
}

// Images of the simulated runtime: they run as root, as a user by number, and by name.
const (
	rootImage  = "sim.local/app:1"
	userImage  = "sim.local/user:1"
	namedImage = "sim.local/named:1"
	doneImage  = "sim.local/exit:0"
)

// ordinaryPod returns a pod without variants.
func ordinaryPod(name string) *v1.Pod {
	pod := &v1.Pod{}
	pod.Name = name
	pod.Labels = map[string]string{"app": "x"}
	pod.Annotations = map[string]string{"example.com/a": "b"}
	pod.Spec = v1.PodSpec{
		AutomountServiceAccountToken:  ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To(int64(1)),
		SecurityContext:               &v1.PodSecurityContext{},
		Tolerations:                   []v1.Toleration{{Operator: v1.TolerationOpExists}},
		Containers: []v1.Container{{Name: "main", Image: rootImage,
			SecurityContext: &v1.SecurityContext{}}},
	}
	return pod
}

// whole makes a variant of a change to the pod's spec, main to its first container, secure and
// shared to their security contexts.
func whole(name string, set func(*v1.PodSpec)) variant {
	return variant{name: name, set: func(p *v1.Pod) { set(&p.Spec) }}
}

func main(name string, set func(*v1.Container)) variant {
	return variant{name: name, set: func(p *v1.Pod) { set(&p.Spec.Containers[0]) }}
}

func secure(name string, set func(*v1.SecurityContext)) variant {
	return variant{name: name, set: func(p *v1.Pod) { set(p.Spec.Containers[0].SecurityContext) }}
}

func shared(name string, set func(*v1.PodSecurityContext)) variant {
	return variant{name: name, set: func(p *v1.Pod) { set(p.Spec.SecurityContext) }}
}

// mounted makes a variant of a volume and its mount in the first container.
func mounted(name string, source v1.VolumeSource, m v1.VolumeMount) variant {
	return variant{name: name, set: func(p *v1.Pod) {
		m.Name = "v" + string(rune('a'+len(p.Spec.Volumes)))
		m.MountPath = "/" + m.Name
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: m.Name, VolumeSource: source})
		c := &p.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, m)
	}}
}

// securityVariants change both security contexts, and namespaces.
func securityVariants() []variant {
	return []variant{
		secure("user", func(s *v1.SecurityContext) { s.RunAsUser = ptr.To(int64(7)) }),
		secure("user-group", func(s *v1.SecurityContext) {
			s.RunAsUser, s.RunAsGroup = ptr.To(int64(8)), ptr.To(int64(9))
		}),
		secure("group", func(s *v1.SecurityContext) { s.RunAsGroup = ptr.To(int64(10)) }),
		secure("non-root-by-user", func(s *v1.SecurityContext) {
			s.RunAsUser, s.RunAsNonRoot = ptr.To(int64(8)), ptr.To(true)
		}),
		secure("non-root", func(s *v1.SecurityContext) { s.RunAsNonRoot = ptr.To(true) }),
		secure("non-root-by-root", func(s *v1.SecurityContext) {
			s.RunAsUser, s.RunAsNonRoot = ptr.To(int64(0)), ptr.To(true)
		}),
		secure("privileged", func(s *v1.SecurityContext) { s.Privileged = ptr.To(true) }),
		secure("capabilities", func(s *v1.SecurityContext) {
			s.Capabilities = &v1.Capabilities{Add: []v1.Capability{"NET_ADMIN", "SYS_TIME"},
				Drop: []v1.Capability{"ALL"}}
		}),
		secure("no-escalation", func(s *v1.SecurityContext) {
			s.AllowPrivilegeEscalation = ptr.To(false)
		}),
		secure("read-only-root", func(s *v1.SecurityContext) {
			s.ReadOnlyRootFilesystem = ptr.To(true)
		}),
		secure("seccomp-file", func(s *v1.SecurityContext) {
			s.SeccompProfile = &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost,
				LocalhostProfile: ptr.To("profiles/a.json")}
		}),
		secure("selinux", func(s *v1.SecurityContext) {
			s.SELinuxOptions = &v1.SELinuxOptions{Level: "s0:c1,c2", Type: "spc_t"}
		}),
		secure("apparmor-none", func(s *v1.SecurityContext) {
			s.AppArmorProfile = &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
		}),
		{name: "proc-unmasked", set: func(p *v1.Pod) {
			p.Spec.HostUsers = ptr.To(false)
			p.Spec.Containers[0].SecurityContext.ProcMount = ptr.To(v1.UnmaskedProcMount)
		}},
		shared("pod-user", func(s *v1.PodSecurityContext) { s.RunAsUser = ptr.To(int64(5)) }),
		shared("pod-user-group", func(s *v1.PodSecurityContext) {
			s.RunAsUser, s.RunAsGroup = ptr.To(int64(5)), ptr.To(int64(6))
		}),
		shared("pod-non-root", func(s *v1.PodSecurityContext) { s.RunAsNonRoot = ptr.To(true) }),
		shared("fs-group", func(s *v1.PodSecurityContext) {
			s.FSGroup = ptr.To(int64(70))
			s.FSGroupChangePolicy = ptr.To(v1.FSGroupChangeOnRootMismatch)
		}),
		shared("groups", func(s *v1.PodSecurityContext) {
			s.SupplementalGroups = []int64{71, 72}
		}),
		shared("groups-strict", func(s *v1.PodSecurityContext) {
			s.SupplementalGroups = []int64{73}
			s.SupplementalGroupsPolicy = ptr.To(v1.SupplementalGroupsPolicyStrict)
		}),
		shared("pod-seccomp", func(s *v1.PodSecurityContext) {
			s.SeccompProfile = &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault}
		}),
		shared("pod-selinux", func(s *v1.PodSecurityContext) {
			s.SELinuxOptions = &v1.SELinuxOptions{User: "u", Role: "r", Type: "t", Level: "s0"}
			s.SELinuxChangePolicy = ptr.To(v1.SELinuxChangePolicyRecursive)
		}),
		shared("pod-apparmor", func(s *v1.PodSecurityContext) {
			s.AppArmorProfile = &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}
		}).asRefused(),
		shared("sysctl", func(s *v1.PodSecurityContext) {
			s.Sysctls = []v1.Sysctl{{Name: "kernel.shm_rmid_forced", Value: "1"},
				{Name: "net/ipv4/tcp_syncookies", Value: "0"}}
		}),
		shared("sysctl-unsafe", func(s *v1.PodSecurityContext) {
			s.Sysctls = []v1.Sysctl{{Name: "kernel.msgmax", Value: "1"}}
		}).asRefused(),
		shared("sysctl-allowed", func(s *v1.PodSecurityContext) {
			s.Sysctls = []v1.Sysctl{{Name: "net.core.somaxconn", Value: "1"}}
		}),
		whole("host-network", func(s *v1.PodSpec) { s.HostNetwork = true }),
		whole("host-pid", func(s *v1.PodSpec) { s.HostPID = true }),
		whole("host-ipc", func(s *v1.PodSpec) { s.HostIPC = true }),
		whole("share-processes", func(s *v1.PodSpec) { s.ShareProcessNamespace = ptr.To(true) }),
		whole("user-namespace", func(s *v1.PodSpec) { s.HostUsers = ptr.To(false) }),
		main("user-image", func(c *v1.Container) { c.Image = userImage }),
		main("named-image", func(c *v1.Container) { c.Image = namedImage }),
	}
}

// lifeVariants change containers, resources, names and placement.
func lifeVariants() []variant {
	return []variant{
		main("requests", func(c *v1.Container) {
			c.Resources.Requests = podtest.Amounts("cpu=20m memory=32Mi")
		}),
		main("limits", func(c *v1.Container) { c.Resources.Limits = podtest.Amounts("cpu=30m memory=64Mi") }),
		main("cpu-limit", func(c *v1.Container) { c.Resources.Limits = podtest.Amounts("cpu=1m") }),
		main("burst", func(c *v1.Container) {
			c.Resources.Requests = podtest.Amounts("cpu=1m memory=1Gi")
			c.Resources.Limits = podtest.Amounts("cpu=50m memory=2Gi")
		}),
		main("too-many-cpus", func(c *v1.Container) {
			c.Resources.Requests = podtest.Amounts("cpu=900")
		}).asRefused(),
		main("too-much-memory", func(c *v1.Container) {
			c.Resources.Requests = podtest.Amounts("memory=9Ti")
		}).asRefused(),
		whole("pod-resources", func(s *v1.PodSpec) {
			s.Resources = &v1.ResourceRequirements{Requests: podtest.Amounts("cpu=24m memory=48Mi"),
				Limits: podtest.Amounts("cpu=48m memory=96Mi")}
		}),
		whole("critical", func(s *v1.PodSpec) { s.PriorityClassName = "system-node-critical" }),
		whole("cluster-critical", func(s *v1.PodSpec) {
			s.PriorityClassName = "system-cluster-critical"
		}),
		main("terminal", func(c *v1.Container) { c.TTY, c.Stdin, c.StdinOnce = true, true, true }),
		main("command", func(c *v1.Container) {
			c.Command = []string{"sleep", "$(T)"}
			c.Args = []string{"$$(T)$(NONE)"}
			c.WorkingDir = "/w"
			c.Env = append(c.Env, v1.EnvVar{Name: "T", Value: "1d"})
		}),
		main("last-words", func(c *v1.Container) {
			c.TerminationMessagePath = "/words"
			c.TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError
		}),
		main("pre-stop", func(c *v1.Container) {
			lifecycle(c).PreStop = &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 1}}
		}),
		main("ports", func(c *v1.Container) {
			c.Ports = []v1.ContainerPort{{Name: "web", ContainerPort: 80}, {ContainerPort: 53,
				Protocol: v1.ProtocolUDP}, {ContainerPort: 9, Protocol: v1.ProtocolSCTP}}
		}),
		main("host-port", func(c *v1.Container) {
			c.Ports = append(c.Ports, v1.ContainerPort{ContainerPort: 81, HostPort: 8181,
				HostIP: "127.0.0.1"})
		}),
		whole("init", func(s *v1.PodSpec) {
			s.InitContainers = append(s.InitContainers,
				v1.Container{Name: "init", Image: doneImage})
		}),
		whole("sidecar", func(s *v1.PodSpec) {
			s.InitContainers = append(s.InitContainers, v1.Container{
				Name: "sidecar", Image: userImage,
				RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways),
				Resources:     v1.ResourceRequirements{Requests: podtest.Amounts("cpu=10m memory=20Mi")},
			})
		}),
		whole("second", func(s *v1.PodSpec) {
			s.Containers = append(s.Containers, v1.Container{Name: "second", Image: userImage,
				Resources: v1.ResourceRequirements{Limits: podtest.Amounts("cpu=30m memory=40Mi")}})
		}),
		whole("hostname", func(s *v1.PodSpec) { s.Hostname, s.Subdomain = "h", "sub" }),
		whole("fqdn", func(s *v1.PodSpec) {
			s.Subdomain, s.SetHostnameAsFQDN = "sub", ptr.To(true)
		}),
		whole("hostname-override", func(s *v1.PodSpec) {
			s.HostnameOverride = ptr.To("other.example.com")
		}),
		whole("aliases", func(s *v1.PodSpec) {
			s.HostAliases = []v1.HostAlias{{IP: "10.1.1.1", Hostnames: []string{"a", "b"}}}
		}),
		whole("dns", func(s *v1.PodSpec) {
			s.DNSPolicy = v1.DNSNone
			s.DNSConfig = &v1.PodDNSConfig{Nameservers: []string{"10.2.2.2"},
				Searches: []string{"x.y"}, Options: []v1.PodDNSConfigOption{{Name: "ndots",
					Value: ptr.To("2")}, {Name: "edns0"}}}
		}),
		whole("windows", func(s *v1.PodSpec) { s.OS = &v1.PodOS{Name: v1.Windows} }).asRefused(),
		variant{name: "label-windows", set: func(p *v1.Pod) {
			p.Labels[v1.LabelOSStable] = "windows"
		}}.asRefused(),
		whole("linux", func(s *v1.PodSpec) { s.OS = &v1.PodOS{Name: v1.Linux} }),
		whole("selector", func(s *v1.PodSpec) {
			s.NodeSelector = map[string]string{"example.com/none": "x"}
		}).asRefused(),
		whole("selected", func(s *v1.PodSpec) {
			s.NodeSelector = map[string]string{v1.LabelOSStable: "linux"}
		}),
		whole("affinity", func(s *v1.PodSpec) {
			s.Affinity = wantsNode("example.com/none")
		}).asRefused(),
		whole("affine", func(s *v1.PodSpec) { s.Affinity = wantsNode(v1.LabelHostname) }),
		whole("runtime-class", func(s *v1.PodSpec) { s.RuntimeClassName = ptr.To("heavy") }),
		whole("no-links", func(s *v1.PodSpec) { s.EnableServiceLinks = ptr.To(false) }),
	}
}

func wantsNode(label string) *v1.Affinity {
	return &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
			NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
				{Key: label, Operator: v1.NodeSelectorOpExists},
			}}},
		},
	}}
}

// contentVariants change environment and volumes.
func contentVariants() []variant {
	empty := v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}
	field := func(path string) *v1.EnvVarSource {
		return &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: path}}
	}
	quantity := func(name string) *v1.EnvVarSource {
		return &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: name}}
	}
	return []variant{
		main("fields", func(c *v1.Container) {
			for name, path := range map[string]string{"NAME": "metadata.name",
				"APP": "metadata.labels['app']", "NODE": "spec.nodeName",
				"NOTE":    "metadata.annotations['example.com/a']",
				"ACCOUNT": "spec.serviceAccountName", "HOST": "status.hostIP",
				"HOSTS": "status.hostIPs", "IP": "status.podIP", "IPS": "status.podIPs"} {
				c.Env = append(c.Env, v1.EnvVar{Name: name, ValueFrom: field(path)})
			}
		}),
		main("quantities", func(c *v1.Container) {
			c.Env = append(c.Env, v1.EnvVar{Name: "CPU", ValueFrom: quantity("limits.cpu")},
				v1.EnvVar{Name: "MEM", ValueFrom: quantity("limits.memory")},
				v1.EnvVar{Name: "DISK", ValueFrom: quantity("requests.ephemeral-storage")})
		}),
		main("env-from", func(c *v1.Container) {
			from := v1.LocalObjectReference{Name: "plain"}
			c.EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{
				LocalObjectReference: from}}, {Prefix: "S_", SecretRef: &v1.SecretEnvSource{
				LocalObjectReference: from}}}
		}),
		{name: "env-file", set: func(p *v1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "files", VolumeSource: empty})
			c := &p.Spec.Containers[0]
			c.VolumeMounts = append(c.VolumeMounts,
				v1.VolumeMount{Name: "files", MountPath: "/files"})
			c.Env = append(c.Env, v1.EnvVar{Name: "F", ValueFrom: &v1.EnvVarSource{
				FileKeyRef: &v1.FileKeySelector{VolumeName: "files", Path: "e", Key: "F",
					Optional: ptr.To(true)}}})
		}},
		mounted("empty-dir", empty, v1.VolumeMount{}),
		mounted("read-only", empty, v1.VolumeMount{ReadOnly: true,
			RecursiveReadOnly: ptr.To(v1.RecursiveReadOnlyIfPossible)}),
		mounted("propagated", empty,
			v1.VolumeMount{MountPropagation: ptr.To(v1.MountPropagationHostToContainer)}),
		mounted("host-path", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/etc"}},
			v1.VolumeMount{ReadOnly: true}),
		mounted("config-map", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
			LocalObjectReference: v1.LocalObjectReference{Name: "plain"}}}, v1.VolumeMount{}),
		mounted("secret", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "plain"}},
			v1.VolumeMount{}),
		mounted("downward", v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
			Items: []v1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &v1.ObjectFieldSelector{
				FieldPath: "metadata.labels"}}}}}, v1.VolumeMount{}),
	}
}

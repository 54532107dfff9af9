package manifest

import (
	"math"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/topology/podspec"
)

func validateContainers(s *v1.PodSpec, volumes sets.Set[string], at place) {
	if len(s.Containers) == 0 {
		at.child("containers").required("a pod needs at least one")
	}
	names := sets.New[string]()
	for i := range s.InitContainers {
		c, at := &s.InitContainers[i], at.child("initContainers").index(i)
		validateContainer(c, volumes, names, at)
		validateInit(c, at)
	}
	for i := range s.Containers {
		c, at := &s.Containers[i], at.child("containers").index(i)
		validateContainer(c, volumes, names, at)
		validateRestarts(c, at)
		validateProbes(c, at)
	}
}

// validateInit checks the rules for init containers. Those with restart policy Always are sidecars,
// to which the rules for ordinary containers apply.
func validateInit(c *v1.Container, at place) {
	validateRestarts(c, at)
	if podspec.IsSidecar(c) {
		validateProbes(c, at)
		return
	}
	for name, set := range map[string]bool{
		"livenessProbe": c.LivenessProbe != nil, "readinessProbe": c.ReadinessProbe != nil,
		"startupProbe": c.StartupProbe != nil, "lifecycle": c.Lifecycle != nil,
	} {
		if set {
			at.child(name).forbid("init containers without restartPolicy Always may not have it")
		}
	}
}

func validateContainer(c *v1.Container, volumes, names sets.Set[string], at place) {
	at.child("name").named(c.Name, validation.IsDNS1123Label, "give the container a name")
	if names.Has(c.Name) {
		at.child("name").duplicate(c.Name)
	}
	names.Insert(c.Name)
	switch {
	case c.Image == "":
		at.child("image").required("name the image to run")
	case strings.TrimSpace(c.Image) != c.Image:
		at.child("image").invalid(c.Image, "must not begin or end with blanks")
	}
	oneOf(at.child("imagePullPolicy"), c.ImagePullPolicy, v1.PullAlways, v1.PullIfNotPresent,
		v1.PullNever)
	oneOf(at.child("terminationMessagePolicy"), c.TerminationMessagePolicy,
		v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)
	validatePorts(c.Ports, at.child("ports"))
	validateEnv(c, at)
	validateMounts(c, volumes, at)
	validateSecurity(c.SecurityContext, at.child("securityContext"))
	validateResources(&c.Resources, at.child("resources"))
}

func validatePorts(ports []v1.ContainerPort, at place) {
	names := sets.New[string]()
	for i, p := range ports {
		at := at.index(i)
		if p.Name != "" {
			at.child("name").texts(p.Name, validation.IsValidPortName(p.Name))
			if names.Has(p.Name) {
				at.child("name").duplicate(p.Name)
			}
			names.Insert(p.Name)
		}
		at.child("containerPort").between(int64(p.ContainerPort), 1, 65535)
		at.child("hostPort").between(int64(p.HostPort), 0, 65535)
		oneOf(at.child("protocol"), p.Protocol, v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP)
		if p.HostIP != "" {
			validateIP(at.child("hostIP"), p.HostIP)
		}
	}
}

// validateHostPorts reports host ports that two containers claim, and in the host's network host
// ports that differ from the container's ports.
func validateHostPorts(s *v1.PodSpec, at place) {
	type claim struct {
		protocol v1.Protocol
		ip       string
		port     int32
	}
	taken := map[claim]bool{}
	check := func(containers []v1.Container, at place) {
		for i, c := range containers {
			for j, p := range c.Ports {
				at := at.index(i).child("ports").index(j).child("hostPort")
				if s.HostNetwork && p.HostPort != p.ContainerPort {
					at.invalid(p.HostPort, "must equal containerPort with hostNetwork")
				}
				key := claim{p.Protocol, p.HostIP, p.HostPort}
				if p.HostPort != 0 && taken[key] {
					at.duplicate(p.HostPort)
				}
				taken[key] = true
			}
		}
	}
	check(s.Containers, at.child("containers"))
	// Init containers without restart policy end before the others start, so they may share ports.
	sidecars := slices.Clone(s.InitContainers)
	for i := range sidecars {
		if sidecars[i].RestartPolicy == nil {
			sidecars[i].Ports = nil
		}
	}
	check(sidecars, at.child("initContainers"))
}

func validateEnv(c *v1.Container, at place) {
	for i, env := range c.Env {
		at := at.child("env").index(i)
		at.child("name").named(env.Name, validation.IsRelaxedEnvVarName, "give the variable a name")
		if env.ValueFrom != nil {
			validateValueFrom(&env, at.child("valueFrom"))
		}
	}
	for i, from := range c.EnvFrom {
		at := at.child("envFrom").index(i)
		if (from.ConfigMapRef == nil) == (from.SecretRef == nil) {
			at.invalid("", "must have one of configMapRef, secretRef")
		}
	}
}

func validateValueFrom(env *v1.EnvVar, at place) {
	from := env.ValueFrom
	sources := count(from.FieldRef != nil, from.ResourceFieldRef != nil, from.ConfigMapKeyRef != nil,
		from.SecretKeyRef != nil, from.FileKeyRef != nil)
	switch {
	case env.Value != "":
		at.invalid("", "may not be used when value is set")
	case sources != 1:
		at.invalid("", "must name exactly one source")
	case from.FieldRef != nil:
		validateFieldRef(from.FieldRef, at.child("fieldRef"), "spec.nodeName",
			"spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP",
			"status.podIPs")
	case from.ResourceFieldRef != nil:
		validateResourceRef(from.ResourceFieldRef, at.child("resourceFieldRef"))
	case from.FileKeyRef != nil:
		validateInside(at.child("fileKeyRef", "path"), from.FileKeyRef.Path)
	}
}

// validateFieldRef allows the pod's metadata and the paths in more.
func validateFieldRef(ref *v1.ObjectFieldSelector, at place, more ...string) {
	allowed := append([]string{"metadata.annotations", "metadata.labels", "metadata.name",
		"metadata.namespace", "metadata.uid"}, more...)
	whole, key, keyed := strings.Cut(strings.TrimSuffix(ref.FieldPath, "']"), "['")
	switch {
	case ref.APIVersion != "v1":
		at.child("apiVersion").unsupported(ref.APIVersion, []string{"v1"})
	case keyed && (whole == "metadata.labels" || whole == "metadata.annotations"):
		at.child("fieldPath").texts(ref.FieldPath, validation.IsQualifiedName(strings.ToLower(key)))
	case !slices.Contains(allowed, ref.FieldPath),
		len(more) > 0 && !keyed && slices.Contains(allowed[:2], whole): // not for a variable
		at.child("fieldPath").unsupported(ref.FieldPath, allowed)
	}
}

func validateResourceRef(ref *v1.ResourceFieldSelector, at place) {
	kind, name, _ := strings.Cut(ref.Resource, ".")
	known := name == "cpu" || name == "memory" || name == "ephemeral-storage" ||
		strings.HasPrefix(name, v1.ResourceHugePagesPrefix)
	switch {
	case kind != "limits" && kind != "requests" || !known:
		at.child("resource").invalid(ref.Resource, "must be limits or requests of cpu, memory, "+
			"ephemeral-storage or hugepages-<size>")
	case ref.Divisor.Sign() < 0:
		at.child("divisor").invalid(ref.Divisor.String(), "must not be negative")
	}
}

func validateMounts(c *v1.Container, volumes sets.Set[string], at place) {
	paths := sets.New[string]()
	privileged := c.SecurityContext != nil && ptr.Deref(c.SecurityContext.Privileged, false)
	for i, m := range c.VolumeMounts {
		at := at.child("volumeMounts").index(i)
		if !volumes.Has(m.Name) {
			at.child("name").missing(m.Name)
		}
		switch {
		case m.MountPath == "":
			at.child("mountPath").required("say where to mount")
		case paths.Has(path.Clean(m.MountPath)):
			at.child("mountPath").invalid(m.MountPath, "must be unique")
		}
		paths.Insert(path.Clean(m.MountPath))
		if m.SubPath != "" && m.SubPathExpr != "" {
			at.child("subPathExpr").forbid("excludes subPath")
		}
		validateInside(at.child("subPath"), m.SubPath)
		validateInside(at.child("subPathExpr"), m.SubPathExpr)
		if m.MountPropagation != nil {
			oneOf(at.child("mountPropagation"), *m.MountPropagation, v1.MountPropagationNone,
				v1.MountPropagationHostToContainer, v1.MountPropagationBidirectional)
			if *m.MountPropagation == v1.MountPropagationBidirectional && !privileged {
				at.child("mountPropagation").forbid("Bidirectional needs a privileged container")
			}
		}
	}
	for i, d := range c.VolumeDevices { // the rules of the volume's type cover the rest
		at := at.child("volumeDevices").index(i)
		if !volumes.Has(d.Name) {
			at.child("name").missing(d.Name)
		}
		if d.DevicePath == "" {
			at.child("devicePath").required("where the container has the device")
		}
	}
}

func validateSecurity(sc *v1.SecurityContext, at place) {
	if sc == nil {
		return
	}
	validateIDs(at, sc.RunAsUser, sc.RunAsGroup)
	if sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation {
		admin := sc.Capabilities != nil && slices.Contains(sc.Capabilities.Add, "CAP_SYS_ADMIN")
		if ptr.Deref(sc.Privileged, false) || admin {
			at.child("allowPrivilegeEscalation").invalid(false,
				"must be true with privileged or CAP_SYS_ADMIN")
		}
	}
	if sc.ProcMount != nil {
		oneOf(at.child("procMount"), *sc.ProcMount, v1.DefaultProcMount, v1.UnmaskedProcMount)
	}
	validateSeccomp(sc.SeccompProfile, at.child("seccompProfile"))
}

func validateProbes(c *v1.Container, at place) {
	for name, p := range map[string]*v1.Probe{"livenessProbe": c.LivenessProbe,
		"readinessProbe": c.ReadinessProbe, "startupProbe": c.StartupProbe} {
		if p == nil {
			continue
		}
		at := at.child(name)
		if count(p.Exec != nil, p.HTTPGet != nil, p.TCPSocket != nil, p.GRPC != nil) != 1 {
			at.invalid("", "must have exactly one of exec, httpGet, tcpSocket, grpc")
		}
		for name, value := range map[string]int32{
			"initialDelaySeconds": p.InitialDelaySeconds, "timeoutSeconds": p.TimeoutSeconds,
			"periodSeconds": p.PeriodSeconds, "successThreshold": p.SuccessThreshold,
			"failureThreshold": p.FailureThreshold,
		} {
			at.child(name).between(int64(value), 0, math.MaxInt32)
		}
		readiness := p == c.ReadinessProbe
		if !readiness && p.SuccessThreshold > 1 {
			at.child("successThreshold").invalid(p.SuccessThreshold,
				"must be 1: only a readinessProbe counts successes")
		}
		if grace := p.TerminationGracePeriodSeconds; grace != nil && readiness {
			at.child("terminationGracePeriodSeconds").forbid("a readinessProbe stops nothing")
		} else if grace != nil {
			at.child("terminationGracePeriodSeconds").between(*grace, 1, math.MaxInt32)
		}
	}
	validateHooks(c.Lifecycle, at.child("lifecycle"))
}

func validateHooks(l *v1.Lifecycle, at place) {
	if l == nil {
		return
	}
	for name, h := range map[string]*v1.LifecycleHandler{
		"postStart": l.PostStart, "preStop": l.PreStop,
	} {
		if h != nil && count(h.Exec != nil, h.HTTPGet != nil, h.TCPSocket != nil,
			h.Sleep != nil) != 1 {
			at.child(name).invalid("", "must have exactly one of exec, httpGet, tcpSocket, sleep")
		}
	}
}

// count returns the number of true values.
func count(all ...bool) (n int) {
	for _, one := range all {
		if one {
			n++
		}
	}
	return n
}

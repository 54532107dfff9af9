package source

import (
	"math"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/topology/podspec"
)

func validateContainers(s *v1.PodSpec, volumes sets.Set[string], at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(s.Containers) == 0 {
		errs = append(errs, field.Required(at.Child("containers"), "a pod needs at least one"))
	}
	names := sets.New[string]()
	for i := range s.InitContainers {
		c, at := &s.InitContainers[i], at.Child("initContainers").Index(i)
		errs = append(errs, validateContainer(c, volumes, names, at)...)
		errs = append(errs, validateInit(c, at)...)
	}
	for i := range s.Containers {
		c, at := &s.Containers[i], at.Child("containers").Index(i)
		errs = append(errs, validateContainer(c, volumes, names, at)...)
		errs = append(errs, validateRestarts(c, at)...)
		errs = append(errs, validateProbes(c, at)...)
	}
	return errs
}

// validateInit checks what only holds for init containers. With restart policy Always they are
// sidecars, which may have what ordinary containers have.
func validateInit(c *v1.Container, at *field.Path) field.ErrorList {
	errs := validateRestarts(c, at)
	if podspec.IsSidecar(c) {
		return append(errs, validateProbes(c, at)...)
	}
	for name, set := range map[string]bool{
		"livenessProbe": c.LivenessProbe != nil, "readinessProbe": c.ReadinessProbe != nil,
		"startupProbe": c.StartupProbe != nil, "lifecycle": c.Lifecycle != nil,
	} {
		if set {
			errs = append(errs, field.Forbidden(at.Child(name),
				"init containers without restartPolicy Always may not have it"))
		}
	}
	return errs
}

func validateContainer(c *v1.Container, volumes, names sets.Set[string],
	at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), "give the container a name"))
	} else {
		errs = append(errs, texts(at.Child("name"), c.Name, validation.IsDNS1123Label(c.Name))...)
	}
	if names.Has(c.Name) {
		errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
	}
	names.Insert(c.Name)
	switch {
	case c.Image == "":
		errs = append(errs, field.Required(at.Child("image"), "name the image to run"))
	case strings.TrimSpace(c.Image) != c.Image:
		errs = append(errs, field.Invalid(at.Child("image"), c.Image,
			"must not begin or end with blanks"))
	}
	errs = append(errs, oneOf(at.Child("imagePullPolicy"), c.ImagePullPolicy,
		v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)...)
	errs = append(errs, oneOf(at.Child("terminationMessagePolicy"), c.TerminationMessagePolicy,
		v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, validatePorts(c.Ports, at.Child("ports"))...)
	errs = append(errs, validateEnv(c, at)...)
	errs = append(errs, validateMounts(c, volumes, at)...)
	errs = append(errs, validateSecurity(c.SecurityContext, at.Child("securityContext"))...)
	return append(errs, validateResources(&c.Resources, at.Child("resources"))...)
}

func validatePorts(ports []v1.ContainerPort, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i, p := range ports {
		at := at.Index(i)
		if p.Name != "" {
			errs = append(errs,
				texts(at.Child("name"), p.Name, validation.IsValidPortName(p.Name))...)
			if names.Has(p.Name) {
				errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
			}
			names.Insert(p.Name)
		}
		errs = append(errs, between(at.Child("containerPort"), int64(p.ContainerPort), 1, 65535)...)
		errs = append(errs, between(at.Child("hostPort"), int64(p.HostPort), 0, 65535)...)
		errs = append(errs, oneOf(at.Child("protocol"), p.Protocol,
			v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP)...)
		if p.HostIP != "" {
			errs = append(errs, validateIP(at.Child("hostIP"), p.HostIP)...)
		}
	}
	return errs
}

// validateHostPorts finds ports of the host that two containers claim, and with the host's network
// those that differ from the container's.
func validateHostPorts(s *v1.PodSpec, at *field.Path) field.ErrorList {
	type claim struct {
		protocol v1.Protocol
		ip       string
		port     int32
	}
	var errs field.ErrorList
	taken := map[claim]bool{}
	check := func(containers []v1.Container, at *field.Path) {
		for i, c := range containers {
			for j, p := range c.Ports {
				at := at.Index(i).Child("ports").Index(j).Child("hostPort")
				if s.HostNetwork && p.HostPort != p.ContainerPort {
					errs = append(errs, field.Invalid(at, p.HostPort,
						"must equal containerPort with hostNetwork"))
				}
				key := claim{p.Protocol, p.HostIP, p.HostPort}
				if p.HostPort != 0 && taken[key] {
					errs = append(errs, field.Duplicate(at, p.HostPort))
				}
				taken[key] = true
			}
		}
	}
	check(s.Containers, at.Child("containers"))
	// Init containers without restart policy end before the others begin: they may share.
	sidecars := slices.Clone(s.InitContainers)
	for i := range sidecars {
		if sidecars[i].RestartPolicy == nil {
			sidecars[i].Ports = nil
		}
	}
	check(sidecars, at.Child("initContainers"))
	return errs
}

func validateEnv(c *v1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, env := range c.Env {
		at := at.Child("env").Index(i)
		if env.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), "give the variable a name"))
		} else {
			errs = append(errs,
				texts(at.Child("name"), env.Name, validation.IsRelaxedEnvVarName(env.Name))...)
		}
		if env.ValueFrom != nil {
			errs = append(errs, validateValueFrom(&env, at.Child("valueFrom"))...)
		}
	}
	for i, from := range c.EnvFrom {
		at := at.Child("envFrom").Index(i)
		if (from.ConfigMapRef == nil) == (from.SecretRef == nil) {
			errs = append(errs, field.Invalid(at, "", "must have one of configMapRef, secretRef"))
		}
	}
	return errs
}

func validateValueFrom(env *v1.EnvVar, at *field.Path) field.ErrorList {
	from := env.ValueFrom
	sources := 0
	for _, set := range []bool{from.FieldRef != nil, from.ResourceFieldRef != nil,
		from.ConfigMapKeyRef != nil, from.SecretKeyRef != nil, from.FileKeyRef != nil} {
		if set {
			sources++
		}
	}
	switch {
	case env.Value != "":
		return field.ErrorList{field.Invalid(at, "", "may not be used when value is set")}
	case sources != 1:
		return field.ErrorList{field.Invalid(at, "", "must name exactly one source")}
	case from.FieldRef != nil:
		return validateFieldRef(from.FieldRef, at.Child("fieldRef"), "spec.nodeName",
			"spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP",
			"status.podIPs")
	case from.ResourceFieldRef != nil:
		return validateResourceRef(from.ResourceFieldRef, at.Child("resourceFieldRef"))
	case from.FileKeyRef != nil:
		return validateInside(at.Child("fileKeyRef", "path"), from.FileKeyRef.Path)
	default:
		return nil
	}
}

// validateFieldRef allows the metadata of the pod and the further paths.
func validateFieldRef(ref *v1.ObjectFieldSelector, at *field.Path, more ...string) field.ErrorList {
	allowed := append([]string{"metadata.annotations", "metadata.labels", "metadata.name",
		"metadata.namespace", "metadata.uid"}, more...)
	whole, key, keyed := strings.Cut(strings.TrimSuffix(ref.FieldPath, "']"), "['")
	switch {
	case ref.APIVersion != "v1":
		return field.ErrorList{field.NotSupported(at.Child("apiVersion"), ref.APIVersion,
			[]string{"v1"})}
	case keyed && (whole == "metadata.labels" || whole == "metadata.annotations"):
		return texts(at.Child("fieldPath"), ref.FieldPath,
			validation.IsQualifiedName(strings.ToLower(key)))
	case !slices.Contains(allowed, ref.FieldPath),
		len(more) > 0 && !keyed && slices.Contains(allowed[:2], whole): // not as a variable
		return field.ErrorList{field.NotSupported(at.Child("fieldPath"), ref.FieldPath, allowed)}
	default:
		return nil
	}
}

func validateResourceRef(ref *v1.ResourceFieldSelector, at *field.Path) field.ErrorList {
	kind, name, _ := strings.Cut(ref.Resource, ".")
	known := name == "cpu" || name == "memory" || name == "ephemeral-storage" ||
		strings.HasPrefix(name, v1.ResourceHugePagesPrefix)
	if kind != "limits" && kind != "requests" || !known {
		return field.ErrorList{field.Invalid(at.Child("resource"), ref.Resource, "must be "+
			"limits or requests of cpu, memory, ephemeral-storage or hugepages-<size>")}
	}
	if ref.Divisor.Sign() < 0 {
		return field.ErrorList{field.Invalid(at.Child("divisor"), ref.Divisor.String(),
			"must not be negative")}
	}
	return nil
}

func validateMounts(c *v1.Container, volumes sets.Set[string], at *field.Path) field.ErrorList {
	var errs field.ErrorList
	paths := sets.New[string]()
	privileged := c.SecurityContext != nil && ptr.Deref(c.SecurityContext.Privileged, false)
	for i, m := range c.VolumeMounts {
		at := at.Child("volumeMounts").Index(i)
		if !volumes.Has(m.Name) {
			errs = append(errs, field.NotFound(at.Child("name"), m.Name))
		}
		switch {
		case m.MountPath == "":
			errs = append(errs, field.Required(at.Child("mountPath"), "say where to mount"))
		case paths.Has(path.Clean(m.MountPath)):
			errs = append(errs, field.Invalid(at.Child("mountPath"), m.MountPath, "must be unique"))
		}
		paths.Insert(path.Clean(m.MountPath))
		if m.SubPath != "" && m.SubPathExpr != "" {
			errs = append(errs, field.Forbidden(at.Child("subPathExpr"), "excludes subPath"))
		}
		errs = append(errs, validateInside(at.Child("subPath"), m.SubPath)...)
		errs = append(errs, validateInside(at.Child("subPathExpr"), m.SubPathExpr)...)
		if m.MountPropagation != nil {
			errs = append(errs, oneOf(at.Child("mountPropagation"), *m.MountPropagation,
				v1.MountPropagationNone, v1.MountPropagationHostToContainer,
				v1.MountPropagationBidirectional)...)
			if *m.MountPropagation == v1.MountPropagationBidirectional && !privileged {
				errs = append(errs, field.Forbidden(at.Child("mountPropagation"),
					"Bidirectional needs a privileged container"))
			}
		}
	}
	for i, d := range c.VolumeDevices { // of what a volume is its own rules say more
		if !volumes.Has(d.Name) {
			errs = append(errs, field.NotFound(at.Child("volumeDevices").Index(i).Child("name"),
				d.Name))
		}
		if d.DevicePath == "" {
			errs = append(errs, field.Required(at.Child("volumeDevices").Index(i).Child("devicePath"),
				"where the container has the device"))
		}
	}
	return errs
}

func validateSecurity(sc *v1.SecurityContext, at *field.Path) field.ErrorList {
	if sc == nil {
		return nil
	}
	errs := validateIDs(at, sc.RunAsUser, sc.RunAsGroup)
	if sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation {
		admin := sc.Capabilities != nil && slices.Contains(sc.Capabilities.Add, "CAP_SYS_ADMIN")
		if ptr.Deref(sc.Privileged, false) || admin {
			errs = append(errs, field.Invalid(at.Child("allowPrivilegeEscalation"), false,
				"must be true with privileged or CAP_SYS_ADMIN"))
		}
	}
	if sc.ProcMount != nil {
		errs = append(errs, oneOf(at.Child("procMount"), *sc.ProcMount,
			v1.DefaultProcMount, v1.UnmaskedProcMount)...)
	}
	return append(errs, validateSeccomp(sc.SeccompProfile, at.Child("seccompProfile"))...)
}

func validateProbes(c *v1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for name, p := range map[string]*v1.Probe{"livenessProbe": c.LivenessProbe,
		"readinessProbe": c.ReadinessProbe, "startupProbe": c.StartupProbe} {
		if p == nil {
			continue
		}
		at := at.Child(name)
		if count(p.Exec != nil, p.HTTPGet != nil, p.TCPSocket != nil, p.GRPC != nil) != 1 {
			errs = append(errs, field.Invalid(at, "",
				"must have exactly one of exec, httpGet, tcpSocket, grpc"))
		}
		for name, value := range map[string]int32{
			"initialDelaySeconds": p.InitialDelaySeconds, "timeoutSeconds": p.TimeoutSeconds,
			"periodSeconds": p.PeriodSeconds, "successThreshold": p.SuccessThreshold,
			"failureThreshold": p.FailureThreshold,
		} {
			errs = append(errs, between(at.Child(name), int64(value), 0, math.MaxInt32)...)
		}
		readiness := p == c.ReadinessProbe
		if !readiness && p.SuccessThreshold > 1 {
			errs = append(errs, field.Invalid(at.Child("successThreshold"), p.SuccessThreshold,
				"must be 1: only a readinessProbe counts successes"))
		}
		if grace := p.TerminationGracePeriodSeconds; grace != nil && readiness {
			errs = append(errs, field.Forbidden(at.Child("terminationGracePeriodSeconds"),
				"a readinessProbe stops nothing"))
		} else if grace != nil {
			errs = append(errs, between(at.Child("terminationGracePeriodSeconds"), *grace, 1,
				math.MaxInt32)...)
		}
	}
	return append(errs, validateHooks(c.Lifecycle, at.Child("lifecycle"))...)
}

func validateHooks(l *v1.Lifecycle, at *field.Path) field.ErrorList {
	if l == nil {
		return nil
	}
	var errs field.ErrorList
	for name, h := range map[string]*v1.LifecycleHandler{
		"postStart": l.PostStart, "preStop": l.PreStop,
	} {
		if h != nil && count(h.Exec != nil, h.HTTPGet != nil, h.TCPSocket != nil,
			h.Sleep != nil) != 1 {
			errs = append(errs, field.Invalid(at.Child(name), "",
				"must have exactly one of exec, httpGet, tcpSocket, sleep"))
		}
	}
	return errs
}

// count counts those that are true.
func count(all ...bool) (n int) {
	for _, one := range all {
		if one {
			n++
		}
	}
	return n
}

package cluster_test

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// otherAccount is the service account that a node's namespace has beside the default one.
const otherAccount = "robot"

// furtherVariants are less common variants of placement and environment, with optional objects that
// do not exist.
func furtherVariants() []variant {
	missing := v1.LocalObjectReference{Name: "missing"}
	plain := v1.LocalObjectReference{Name: "plain"}
	return append([]variant{
		whole("account-named", func(s *v1.PodSpec) { s.ServiceAccountName = otherAccount }),
		whole("account-as-before", func(s *v1.PodSpec) { s.DeprecatedServiceAccount = otherAccount }),
		// The kubelet replaces an earlier refusal by the deadline; see docs/pod-fields.md.
		whole("deadline", func(s *v1.PodSpec) {
			s.ActiveDeadlineSeconds = ptr.To(int64(8))
		}).asRefused(),
		whole("tolerates", func(s *v1.PodSpec) {
			s.Tolerations = []v1.Toleration{{Key: "example.com/a", Operator: v1.TolerationOpEqual,
				Value: "b", Effect: v1.TaintEffectNoExecute, TolerationSeconds: ptr.To(int64(1))},
				{Key: level, Operator: v1.TolerationOpExists}}
		}),
		whole("affine-by-fields", func(s *v1.PodSpec) {
			s.Affinity = wantsNode(v1.LabelOSStable)
			term := &s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.
				NodeSelectorTerms[0]
			term.MatchExpressions[0].Operator = v1.NodeSelectorOpIn
			term.MatchExpressions[0].Values = []string{"linux", "other"}
			term.MatchFields = []v1.NodeSelectorRequirement{{Key: "metadata.name",
				Operator: v1.NodeSelectorOpNotIn, Values: []string{"other"}}}
		}),
		secure("apparmor-file", func(s *v1.SecurityContext) {
			s.AppArmorProfile = &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost,
				LocalhostProfile: ptr.To("own")}
		}).asRefused(),
		main("pull-never", func(c *v1.Container) { c.ImagePullPolicy = v1.PullNever }),
		main("env-from-missing", func(c *v1.Container) {
			c.EnvFrom = append(c.EnvFrom,
				v1.EnvFromSource{ConfigMapRef: &v1.ConfigMapEnvSource{
					LocalObjectReference: missing, Optional: ptr.To(true)}},
				v1.EnvFromSource{SecretRef: &v1.SecretEnvSource{
					LocalObjectReference: missing, Optional: ptr.To(true)}})
		}),
		main("keys", func(c *v1.Container) {
			for name, from := range map[string]v1.EnvVarSource{
				"UID": {FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1",
					FieldPath: "metadata.uid"}},
				"KEY":    {ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: plain, Key: "k"}},
				"SECRET": {SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: plain, Key: "k"}},
				"NO_KEY": {ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: plain,
					Key: "none", Optional: ptr.To(true)}},
				"NO_SECRET": {SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: missing,
					Key: "k", Optional: ptr.To(true)}},
			} {
				c.Env = append(c.Env, v1.EnvVar{Name: name, ValueFrom: &from})
			}
		}),
	}, furtherVolumes()...)
}

// furtherVolumes are less common sources of volumes.
func furtherVolumes() []variant {
	missing := v1.LocalObjectReference{Name: "missing"}
	return []variant{
		{name: "class-read-only", set: func(p *v1.Pod) { // the class's handler does not support it
			p.Spec.RuntimeClassName = ptr.To("heavy")
			mounted("", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}, v1.VolumeMount{
				ReadOnly: true, RecursiveReadOnly: ptr.To(v1.RecursiveReadOnlyIfPossible)}).set(p)
		}},
		mounted("image-if-not-present", v1.VolumeSource{Image: &v1.ImageVolumeSource{
			Reference: dataImage, PullPolicy: v1.PullIfNotPresent}}, v1.VolumeMount{}),
		mounted("config-map-missing", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
			LocalObjectReference: missing, Optional: ptr.To(true)}}, v1.VolumeMount{}),
		mounted("secret-modes", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "plain",
			DefaultMode: ptr.To(int32(0o400)), Items: []v1.KeyToPath{{Key: "k", Path: "a"},
				{Key: "k", Path: "b/c", Mode: ptr.To(int32(0o640))}}}}, v1.VolumeMount{}),
		mounted("downward-modes", v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
			DefaultMode: ptr.To(int32(0o440)), Items: []v1.DownwardAPIVolumeFile{
				{Path: "uid", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.uid"}},
				{Path: "name", Mode: ptr.To(int32(0o400)),
					FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}},
			v1.VolumeMount{}),
		mounted("projected-missing", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
			DefaultMode: ptr.To(int32(0o404)), Sources: []v1.VolumeProjection{
				{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: missing,
					Optional: ptr.To(true)}},
				{Secret: &v1.SecretProjection{LocalObjectReference: missing, Optional: ptr.To(true)}},
				{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "t",
					Audience: "vault.example.com"}},
				{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Path: "by-name",
					Name: ptr.To("missing"), Optional: ptr.To(true)}},
				{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Path: "by-label",
					SignerName: ptr.To("example.com/none"), Optional: ptr.To(true),
					LabelSelector: &metav1.LabelSelector{
						MatchLabels: map[string]string{"a": "b"}}}}}}}, v1.VolumeMount{}),
	}
}

// pullVariants change pulls, which an image that exists only on the node cannot have.
func pullVariants() []variant {
	return []variant{
		main("pull-always", func(c *v1.Container) { c.ImagePullPolicy = v1.PullAlways }),
		whole("pull-secrets", func(s *v1.PodSpec) {
			s.Containers[0].ImagePullPolicy = v1.PullAlways
			s.ImagePullSecrets = []v1.LocalObjectReference{{Name: "plain"}, {Name: "missing"}}
		}),
	}
}

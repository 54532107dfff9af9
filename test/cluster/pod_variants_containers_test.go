package cluster_test

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// dataImage is an image for volumes.
const dataImage = "sim.local/data:1"

// lonely are variants that need a pod of their own: they hide others because no container runs for
// long, are hidden by others, or cannot be combined with many.
var lonely = []string{"non-root", "non-root-by-root", "pod-non-root", "user-image", "named-image",
	"init-fails", "not-there", "host-none", "part-named", "env-file", "fails-always", "both-ways"}

// insideVariants have an effect only on real containers.
func insideVariants() []variant {
	plain := v1.LocalObjectReference{Name: "plain"}
	args := func(name string, policy v1.RestartPolicy, args ...string) variant {
		return whole(name, func(s *v1.PodSpec) {
			s.RestartPolicy = policy
			s.Containers[0].Args = append(s.Containers[0].Args, args...)
		})
	}
	projected := func(sources ...v1.VolumeProjection) v1.VolumeSource {
		return v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: sources}}
	}
	return []variant{
		args("ends", v1.RestartPolicyNever, "--exit=0", "--message=all is done"),
		args("fails", v1.RestartPolicyNever, "--exit=3"),
		args("fails-always", v1.RestartPolicyAlways, "--exit=4", "--message=again"),
		{name: "fails-once", set: func(p *v1.Pod) {
			state := v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}
			mounted("", state, v1.VolumeMount{}).set(p)
			c := &p.Spec.Containers[0]
			file := c.VolumeMounts[len(c.VolumeMounts)-1].MountPath + "/once"
			args("", v1.RestartPolicyOnFailure, "--exit=5", "--once="+file).set(p)
		}},
		whole("init-fails", func(s *v1.PodSpec) {
			s.RestartPolicy = v1.RestartPolicyNever
			s.InitContainers = append(s.InitContainers,
				v1.Container{Name: "bad", Image: rootImage, Args: []string{"--exit=6"}})
		}),
		main("not-there", func(c *v1.Container) { c.Command = []string{"/not/there"} }),
		secure("seccomp-none", func(s *v1.SecurityContext) {
			s.SeccompProfile = &v1.SeccompProfile{Type: v1.SeccompProfileTypeUnconfined}
		}),
		{name: "account", set: func(p *v1.Pod) {
			p.Spec.AutomountServiceAccountToken = ptr.To(true)
		}},
		mounted("memory", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{
			Medium: v1.StorageMediumMemory, SizeLimit: ptr.To(resource.MustParse("8Mi"))}},
			v1.VolumeMount{}),
		mounted("memory-unlimited", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{
			Medium: v1.StorageMediumMemory}}, v1.VolumeMount{}),
		mounted("image", v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: dataImage}},
			v1.VolumeMount{}),
		mounted("modes", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
			LocalObjectReference: plain, DefaultMode: ptr.To(int32(0o400)), Items: []v1.KeyToPath{
				{Key: "k", Path: "a/b"}, {Key: "k", Path: "c", Mode: ptr.To(int32(0o777))}}}},
			v1.VolumeMount{ReadOnly: true}),
		mounted("missing", v1.VolumeSource{Secret: &v1.SecretVolumeSource{
			SecretName: "missing", Optional: ptr.To(true)}}, v1.VolumeMount{}),
		mounted("part", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
			LocalObjectReference: plain}}, v1.VolumeMount{SubPath: "k"}),
		mounted("part-made", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}},
			v1.VolumeMount{SubPath: "x/y"}),
		mounted("part-named", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}},
			v1.VolumeMount{SubPathExpr: "of-$(FROM)-$$(x)"}),
		mounted("host-file", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{
			Path: "/etc/hostname", Type: ptr.To(v1.HostPathFile)}}, v1.VolumeMount{}),
		mounted("host-none", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{
			Path: "/not/there", Type: ptr.To(v1.HostPathDirectory)}}, v1.VolumeMount{}),
		mounted("projected", projected(
			v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: plain}},
			v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: plain,
				Items: []v1.KeyToPath{{Key: "k", Path: "s", Mode: ptr.To(int32(0o440))}}}},
			v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{
				Path: "token", ExpirationSeconds: ptr.To(int64(3600))}},
			v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{
				Items: []v1.DownwardAPIVolumeFile{{Path: "cpu", ResourceFieldRef: &v1.ResourceFieldSelector{
					ContainerName: "main", Resource: "limits.cpu", Divisor: resource.MustParse("1m")}},
					{Path: "notes", FieldRef: &v1.ObjectFieldSelector{
						FieldPath: "metadata.annotations"}}}}}), v1.VolumeMount{}),
		{name: "both-ways", set: func(p *v1.Pod) {
			p.Spec.Containers[0].SecurityContext.Privileged = ptr.To(true)
			mounted("", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}, v1.VolumeMount{
				MountPropagation: ptr.To(v1.MountPropagationBidirectional)}).set(p)
		}},
	}
}

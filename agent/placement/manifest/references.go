package manifest

import (
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// APIReference returns the kind of an API object that the pod needs, "" if none: a static pod has
// no API server to get it from.
func APIReference(pod *v1.Pod) string {
	s := &pod.Spec
	switch {
	case s.ServiceAccountName != "" || s.DeprecatedServiceAccount != "":
		return "serviceaccounts"
	case len(s.ImagePullSecrets) > 0:
		return "secrets"
	case len(s.ResourceClaims) > 0:
		return "resourceclaims"
	}
	for c := range podspec.Containers(pod) {
		if what := envReference(c); what != "" {
			return what
		}
	}
	for _, v := range s.Volumes {
		if what := volumeReference(&v.VolumeSource); what != "" {
			return what
		}
	}
	return ""
}

func envReference(c *v1.Container) string {
	for _, from := range c.EnvFrom {
		switch {
		case from.SecretRef != nil:
			return "secrets"
		case from.ConfigMapRef != nil:
			return "configmaps"
		}
	}
	for _, env := range c.Env {
		switch {
		case env.ValueFrom == nil:
		case env.ValueFrom.SecretKeyRef != nil:
			return "secrets"
		case env.ValueFrom.ConfigMapKeyRef != nil:
			return "configmaps"
		}
	}
	return ""
}

func volumeReference(v *v1.VolumeSource) string {
	switch {
	case v.Secret != nil || v.AzureFile != nil:
		return "secrets"
	case v.ConfigMap != nil:
		return "configmaps"
	case v.CSI != nil:
		return "csidrivers"
	case v.PersistentVolumeClaim != nil || v.Ephemeral != nil:
		return "persistentvolumeclaims"
	case v.Glusterfs != nil:
		return "endpoints"
	case v.Projected != nil:
		return projectedReference(v.Projected)
	default:
		return secretReference(v)
	}
}

func projectedReference(p *v1.ProjectedVolumeSource) string {
	for _, source := range p.Sources {
		switch {
		case source.Secret != nil:
			return "secrets"
		case source.ConfigMap != nil:
			return "configmaps"
		case source.ServiceAccountToken != nil:
			return "serviceaccounts"
		case source.ClusterTrustBundle != nil:
			return "clustertrustbundles"
		case source.PodCertificate != nil:
			return "podcertificates"
		}
	}
	return ""
}

// secretReference returns "secrets" if a volume for network storage refers to one.
func secretReference(v *v1.VolumeSource) string {
	if v.CephFS != nil && v.CephFS.SecretRef != nil ||
		v.Cinder != nil && v.Cinder.SecretRef != nil ||
		v.FlexVolume != nil && v.FlexVolume.SecretRef != nil ||
		v.RBD != nil && v.RBD.SecretRef != nil ||
		v.ScaleIO != nil && v.ScaleIO.SecretRef != nil ||
		v.ISCSI != nil && v.ISCSI.SecretRef != nil ||
		v.StorageOS != nil && v.StorageOS.SecretRef != nil {
		return "secrets"
	}
	return ""
}

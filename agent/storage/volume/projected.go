package volume

import (
	"context"
	"errors"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/internal/await"
)

func projections() plugin {
	p := written("projected", "kubernetes.io/projected", v1.StorageMediumMemory, project)
	p.facts = func(u used) facts {
		sources := u.volume.Projected.Sources
		return facts{
			own:      true,
			ordinary: !slices.ContainsFunc(sources, isRare),
			polled: slices.ContainsFunc(sources,
				func(s v1.VolumeProjection) bool { return s.PodCertificate != nil }),
		}
	}
	return p
}

// rootCA is the ConfigMap that Kubernetes keeps in every namespace.
const rootCA = "kube-root-ca.crt"

// isRare reports whether a source may be missing: it is neither the pod's own text, nor a token,
// nor the cluster's CA.
func isRare(source v1.VolumeProjection) bool {
	return source.ServiceAccountToken == nil && source.DownwardAPI == nil &&
		(source.ConfigMap == nil || source.ConfigMap.Name != rootCA)
}

// project joins the files of all sources; for one path the last source counts.
func project(ctx context.Context, from sources, t target) (content, error) {
	s := t.volume.Projected
	out := content{files: map[string]file{}}
	look := from.look(s.DefaultMode, v1.ProjectedVolumeSourceDefaultMode, s.DefaultUser)
	var errs []error
	for _, source := range s.Sources {
		c, err := from.projection(ctx, t.pod, source, look)
		errs = append(errs, err)
		if from.room.over {
			break
		}
		maps.Copy(out.files, c.files)
		out.again = await.Earlier(out.again, c.again)
	}
	return out, errors.Join(errs...)
}

// projection returns the files of one source. With an error they must not be used.
func (s sources) projection(
	ctx context.Context, pod *v1.Pod, source v1.VolumeProjection, look look,
) (content, error) {
	switch {
	case source == v1.VolumeProjection{}:
		return content{}, nil // the API server accepts sources without a type, which are nothing
	case source.DownwardAPI != nil:
		return s.downwardAPI(pod, source.DownwardAPI.Items, look)
	case s.objects == nil:
		return content{}, errors.New("there is no API server to get its content from; " +
			"run the agent with --kubeconfig")
	case source.ConfigMap != nil:
		return s.configMap(ctx, pod, source.ConfigMap, look)
	case source.Secret != nil:
		return s.secret(ctx, pod, source.Secret, look)
	case source.ServiceAccountToken != nil:
		p := source.ServiceAccountToken
		token, renew, err := s.objects.Token(ctx, pod, p)
		if err != nil {
			return content{}, err
		}
		return s.alone(p.Path, look.credential(pod, token, p.User), renew)
	case source.ClusterTrustBundle != nil:
		p := source.ClusterTrustBundle
		pem, again, err := s.objects.TrustAnchors(ctx, p)
		if err != nil {
			return content{}, err
		}
		return s.alone(p.Path, look.credential(pod, pem, p.User), again)
	default:
		return s.certificateFiles(ctx, pod, source.PodCertificate, look)
	}
}

// certificateFiles returns the key and its certificates, in one file or each in its own.
func (s sources) certificateFiles(
	ctx context.Context, pod *v1.Pod, p *v1.PodCertificateProjection, look look,
) (content, error) {
	key, chain, again, err := s.objects.Certificate(ctx, pod, p)
	if err != nil {
		return content{}, err
	}
	out := content{files: map[string]file{}, again: again}
	for path, data := range map[string][]byte{
		p.CredentialBundlePath: slices.Concat(key, chain), p.KeyPath: key,
		p.CertificateChainPath: chain,
	} {
		if path == "" {
			continue
		}
		if err := s.room.take(path, len(data)); err != nil {
			return content{}, err
		}
		out.files[path] = look.credential(pod, data, p.User)
	}
	return out, nil
}

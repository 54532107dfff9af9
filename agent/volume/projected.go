package volume

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

func projections() plugin {
	return written("projected", "kubernetes.io/projected", v1.StorageMediumMemory, project)
}

// project puts the files of all sources together; of one path the last counts.
func project(ctx context.Context, from sources, t target) (content, error) {
	s := t.volume.Projected
	out := content{files: map[string]file{}}
	mode := modeOf(s.DefaultMode, fs.FileMode(v1.ProjectedVolumeSourceDefaultMode))
	var errs []error
	for _, source := range s.Sources {
		c, err := from.projection(ctx, t.pod, source, mode)
		errs = append(errs, err)
		maps.Copy(out.files, c.files)
		out.again = earlier(out.again, c.again)
	}
	return out, errors.Join(errs...)
}

// earlier is the first of two times; zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (s sources) projection(
	ctx context.Context, pod *v1.Pod, source v1.VolumeProjection, mode fs.FileMode,
) (content, error) {
	switch {
	case source.ConfigMap != nil:
		p := source.ConfigMap
		return s.configMap(ctx, pod, p.Name, keys{p.Items, mode, p.Optional})
	case source.Secret != nil:
		p := source.Secret
		return s.secret(ctx, pod, p.Name, keys{p.Items, mode, p.Optional})
	case source.DownwardAPI != nil:
		return s.downwardAPI(pod, source.DownwardAPI.Items, mode)
	case source.ServiceAccountToken != nil:
		return s.tokenFile(ctx, pod, source.ServiceAccountToken, mode)
	case source.ClusterTrustBundle != nil:
		return s.trustFile(ctx, pod, source.ClusterTrustBundle, mode)
	case source.PodCertificate != nil:
		return s.certificateFiles(ctx, pod, source.PodCertificate, mode)
	default:
		return content{}, nil // the API server has sources without any type, and they are nothing
	}
}

func (s sources) tokenFile(
	ctx context.Context, pod *v1.Pod, p *v1.ServiceAccountTokenProjection, mode fs.FileMode,
) (content, error) {
	objects, err := s.server()
	if err != nil {
		return content{}, err
	}
	token, renew, err := objects.Token(ctx, pod, p)
	if err != nil {
		return content{}, err
	}
	return content{map[string]file{p.Path: credential(pod, token, mode)}, renew}, nil
}

// certificateFiles are the key and its certificates, in one file or each in its own.
func (s sources) certificateFiles(
	ctx context.Context, pod *v1.Pod, p *v1.PodCertificateProjection, mode fs.FileMode,
) (content, error) {
	objects, err := s.server()
	if err != nil {
		return content{}, err
	}
	key, chain, again, err := objects.Certificate(ctx, pod, p)
	if err != nil {
		return content{}, err
	}
	out := content{files: map[string]file{}, again: again}
	for path, data := range map[string][]byte{
		p.CredentialBundlePath: slices.Concat(key, chain), p.KeyPath: key,
		p.CertificateChainPath: chain,
	} {
		if path != "" {
			out.files[path] = credential(pod, data, mode)
		}
	}
	return out, nil
}

func (s sources) trustFile(
	ctx context.Context, pod *v1.Pod, p *v1.ClusterTrustBundleProjection, mode fs.FileMode,
) (content, error) {
	objects, err := s.server()
	if err != nil {
		return content{}, err
	}
	pem, again, err := objects.TrustAnchors(ctx, p)
	if err != nil {
		return content{}, err
	}
	return content{map[string]file{p.Path: credential(pod, pem, mode)}, again}, nil
}

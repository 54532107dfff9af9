package upkeep

import (
	"context"
	"path/filepath"

	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/upkeep/images"
	"github.com/numalet/numalet/agent/upkeep/images/provider"
	"github.com/numalet/numalet/cri"
)

// Images pulls images for containers, and knows who may use which.
type Images struct {
	*cri.Images
	records *images.Records // nil: a pod may use any image that it names
}

// Pulls count pulls of images; *metrics.Metrics does.
type Pulls interface {
	Pulled(cri.Pull)
	Asked(cri.Asked)
}

// OpenImages reads who may use which image. accounts are those of pods; nil: there is no API server.
func OpenImages(ctx context.Context, h *node.Host, accounts provider.Accounts, count Pulls) (out Images, err error) {
	if out.records, err = openRecords(ctx, h); err != nil {
		return out, err
	}
	k := &h.Settings.Kubelet
	cfg := cri.ImagesConfig{
		Serialize:   *k.SerializeImagePulls,
		MaxParallel: int(ptr.Deref(k.MaxParallelImagePulls, 0)),
		QPS:         float32(*k.RegistryPullQPS), Burst: int(k.RegistryBurst),
		Pulled: count.Pulled, Asked: count.Asked,
	}
	if out.records != nil {
		cfg.Records = out.records
	}
	if file := h.Settings.Cluster.CredentialProviderConfig; file != "" {
		providers, err := provider.Open(provider.Config{File: file, Dir: h.Settings.Cluster.CredentialProviderDir,
			Registry: h.Registry, Accounts: accounts})
		if err != nil {
			return out, err
		}
		cfg.Logins = providers.Logins
	}
	out.Images = cri.NewImages(h.Client.Images(), cfg)
	return out, nil
}

// openRecords opens the records of who may use which image.
func openRecords(ctx context.Context, h *node.Host) (*images.Records, error) {
	if !h.Enabled("KubeletEnsureSecretPulledImages") {
		return nil, nil
	}
	k := &h.Settings.Kubelet
	records, err := images.Open(images.Config{
		Dir: filepath.Join(h.Settings.RootDir, "image_manager"),
		Policy: images.Policy{Verify: k.ImagePullCredentialsVerificationPolicy,
			Allowed: k.PreloadedImagesVerificationAllowlist},
		Registry: h.Registry,
	})
	return records, h.Quarantined(ctx, err, "ImageRecordsQuarantined", "images that are on the node "+
		"count as preloaded: remove those that only pods with a login may use")
}

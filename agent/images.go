package agent

import (
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/gc"
	"github.com/numalet/numalet/agent/images"
	"github.com/numalet/numalet/agent/images/provider"
	"github.com/numalet/numalet/agent/metrics"
	"github.com/numalet/numalet/cri"
)

// newImageRecords opens the records of who may use which image; nil: that is not looked at.
func newImageRecords(n node) (*images.Records, error) {
	if !n.cfg.Gates.Enabled("KubeletEnsureSecretPulledImages") {
		return nil, nil
	}
	k := &n.cfg.Kubelet
	return images.Open(images.Config{
		Dir: filepath.Join(n.cfg.RootDir, "image_manager"),
		Policy: images.Policy{Verify: k.ImagePullCredentialsVerificationPolicy,
			Allowed: k.PreloadedImagesVerificationAllowlist},
		Registry: n.registry,
	})
}

// keepRecords brings the records in line with the images that the runtime had at a time.
func keepRecords(r *images.Records, left []gc.Image, at time.Time) {
	if r == nil {
		return
	}
	all, known := make([]images.Image, 0, len(left)), sets.New[string]()
	for _, i := range left {
		all = append(all, images.Image{ID: i.ID, Names: i.Names})
		known.Insert(i.ID).Insert(i.Names...)
	}
	if err := r.Recover(all); err != nil {
		klog.Background().Error(err, "Pulls that did not end stay on record")
	}
	r.Prune(known, at)
}

// newImages pulls images for containers.
func newImages(n node, c contents, m *metrics.Metrics) (*cri.Images, error) {
	k := &n.cfg.Kubelet
	cfg := cri.ImagesConfig{
		Serialize:   *k.SerializeImagePulls,
		MaxParallel: int(ptr.Deref(k.MaxParallelImagePulls, 0)),
		QPS:         float32(*k.RegistryPullQPS), Burst: int(k.RegistryBurst),
		Pulled: m.Pulled, Asked: m.Asked,
	}
	if n.runtime.images != nil {
		cfg.Records = n.runtime.images
	}
	if file := n.cfg.Cluster.CredentialProviderConfig; file != "" {
		pc := provider.Config{File: file, Dir: n.cfg.Cluster.CredentialProviderDir,
			Registry: n.registry}
		if c.objects != nil {
			pc.Accounts = c.objects
		}
		providers, err := provider.Open(pc)
		if err != nil {
			return nil, err
		}
		cfg.Logins = providers.Logins
	}
	return cri.NewImages(n.client.Images(), cfg), nil
}

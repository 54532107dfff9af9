package objects

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cri"
)

const (
	// anchorsAge is the greatest age of cached trust anchors.
	anchorsAge = 5 * time.Minute
	// maxAnchors is the number of cached trust anchors, maxBundles the number of bundles that one
	// signer may have.
	maxAnchors, maxBundles = 256, 500
)

// anchorsKey identifies trust anchors by what a pod asks for.
type anchorsKey struct {
	name, signer, labels string
	nothing              bool // is selected
}

// bundle holds certificates in PEM.
type bundle struct {
	pem  []byte
	read time.Time
}

// TrustAnchors returns the certificates of a ClusterTrustBundle, or of all bundles of a signer that
// the labels select, each once, and the time at which to ask again. The error is a
// *cri.ObjectError.
func (o *Objects) TrustAnchors(
	ctx context.Context, want *v1.ClusterTrustBundleProjection,
) (text []byte, again time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.cfg.Wait)
	defer cancel()
	k, err := anchorsKeyOf(want)
	if err != nil {
		return nil, time.Time{}, err
	}
	kept, _ := o.anchors.Get(k)
	found, _ := kept.(bundle)
	if len(found.pem) == 0 || time.Since(found.read) >= anchorsAge {
		bundles, err := k.bundles(ctx, o.cfg.Client)
		if err != nil {
			return nil, time.Time{}, &cri.ObjectError{Err: err}
		}
		found = bundle{certificates(bundles), time.Now()}
		o.anchors.Add(k, found)
	}
	if len(found.pem) == 0 && !ptr.Deref(want.Optional, false) {
		return nil, time.Time{}, &cri.ObjectError{Err: k.missing()}
	}
	return found.pem, found.read.Add(anchorsAge), nil
}

func anchorsKeyOf(want *v1.ClusterTrustBundleProjection) (anchorsKey, error) {
	if want.Name != nil {
		return anchorsKey{name: *want.Name}, nil
	}
	if want.SignerName == nil {
		return anchorsKey{}, errors.New(
			"ClusterTrustBundle projection requires either name or signerName to be set")
	}
	// No selector selects nothing, an empty one everything.
	labels, err := metav1.LabelSelectorAsSelector(want.LabelSelector)
	if err != nil {
		return anchorsKey{}, fmt.Errorf("labelSelector: %w", err)
	}
	return anchorsKey{
		signer: *want.SignerName, labels: labels.String(), nothing: want.LabelSelector == nil,
	}, nil
}

func (k anchorsKey) missing() error {
	if k.name != "" {
		return apierrors.NewNotFound(certificatesv1.Resource("clustertrustbundles"), k.name)
	}
	return errors.New(
		"combination of signerName and labelSelector matched zero ClusterTrustBundles")
}

// bundles reads the bundles; it is no error if there are none.
func (k anchorsKey) bundles(ctx context.Context, client kubernetes.Interface) (
	[]certificatesv1.ClusterTrustBundle, error) {
	if k.nothing {
		return nil, nil
	}
	all := client.CertificatesV1().ClusterTrustBundles()
	if k.name != "" {
		one, err := all.Get(ctx, k.name, metav1.GetOptions{})
		if err != nil {
			if apierrors.IsNotFound(err) {
				err = nil
			}
			return nil, err
		}
		return []certificatesv1.ClusterTrustBundle{*one}, nil
	}
	list, err := all.List(ctx, metav1.ListOptions{
		LabelSelector: k.labels, Limit: maxBundles,
		FieldSelector: fields.OneTermEqualSelector("spec.signerName", k.signer).String(),
	})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// certificates returns the certificates of the bundles, each once, sorted.
func certificates(bundles []certificatesv1.ClusterTrustBundle) []byte {
	var all [][]byte
	for _, b := range bundles {
		rest := []byte(b.Spec.TrustBundle)
		for {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			if block.Type == "CERTIFICATE" {
				all = append(all, block.Bytes)
			}
		}
	}
	slices.SortFunc(all, bytes.Compare)
	var out bytes.Buffer
	for _, der := range slices.CompactFunc(all, bytes.Equal) {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	return out.Bytes()
}

package images

import (
	"slices"
	"strings"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/cri"
)

// Policy says for which images it is verified that a pod may use them.
type Policy struct {
	Verify kubeletv1beta1.ImagePullCredentialsVerificationPolicy
	// Allowed are images that need not be verified, by their names or everything below PREFIX/*,
	// under the policy NeverVerifyAllowlistedImages.
	Allowed []string
}

// verifies reports whether it is for an image; pulled is whether an agent pulled it here.
func (p Policy) verifies(image string, pulled bool) bool {
	switch p.Verify {
	case kubeletv1beta1.NeverVerify:
		return false
	case kubeletv1beta1.NeverVerifyPreloadedImages, "":
		return pulled
	case kubeletv1beta1.NeverVerifyAllowlistedImages:
		name := cri.Repository(image)
		return pulled || !slices.ContainsFunc(p.Allowed, func(allowed string) bool {
			prefix, wild := strings.CutSuffix(allowed, "/*")
			prefix = cri.Repository(prefix)
			return name == prefix && !wild || wild && strings.HasPrefix(name, prefix+"/")
		})
	default: // AlwaysVerify
		return true
	}
}

package images

import (
	"slices"
	"strings"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/cri"
)

// Policy says for which images pods must have a login.
type Policy struct {
	Verify kubeletv1beta1.ImagePullCredentialsVerificationPolicy
	// Allowed lists images that need no verification under the policy NeverVerifyAllowlistedImages:
	// names, or PREFIX/* for everything below.
	Allowed []string
}

// verifies reports whether pods need a login for the image. pulled is set if an agent pulled the
// image.
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

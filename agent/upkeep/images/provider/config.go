package provider

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	kubeletv1 "k8s.io/kubelet/config/v1"

	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/strictyaml"
)

const (
	// maxConfig bounds a configuration file in bytes, maxProviders the number of providers.
	maxConfig, maxProviders = 1 << 20, 100

	configKind = "CredentialProviderConfig"
	group      = "credentialprovider.kubelet.k8s.io/"
)

// load reads the configuration at path: a file, or a directory of files in the order of their
// names. The digest of their text equals the kubelet's for the same files.
func load(path string) (out []kubeletv1.CredentialProvider, digest string, err error) {
	names, err := list(path)
	if err != nil {
		return nil, "", err
	}
	sum := sha256.New()
	for _, name := range names {
		text, err := files.ReadNamed(name, maxConfig)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", name, err)
		}
		sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text))))
		sum.Write(text)
		found, err := parse(text)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", name, err)
		}
		if out = append(out, found...); len(out) > maxProviders {
			return nil, "", fmt.Errorf("%s: there are more than %d providers", name, maxProviders)
		}
	}
	return out, fmt.Sprintf("sha256:%x", sum.Sum(nil)), validate(out)
}

// list returns the files at path in the order in which they are read.
func list(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	names := []string{path}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		names = nil
		for _, e := range entries {
			ext := filepath.Ext(e.Name())
			if !e.IsDir() && slices.Contains([]string{".json", ".yaml", ".yml"}, ext) {
				names = append(names, filepath.Join(path, e.Name()))
			}
		}
		if len(names) == 0 {
			return nil, fmt.Errorf("no file in %s ends in .json, .yaml or .yml", path)
		}
	}
	return names, nil
}

func parse(text []byte) ([]kubeletv1.CredentialProvider, error) {
	document, err := strictyaml.Parse(text)
	if err != nil {
		return nil, err
	}
	version, kind := document.Kind()
	versions := []string{"kubelet.config.k8s.io/v1", "kubelet.config.k8s.io/v1beta1",
		"kubelet.config.k8s.io/v1alpha1"}
	if kind != configKind || !slices.Contains(versions, version) {
		return nil, fmt.Errorf("it is a %s of %s; write kind: %s with apiVersion: %s", kind, version,
			configKind, versions[0])
	}
	var config kubeletv1.CredentialProviderConfig
	if err := strictyaml.Unmarshal(text, &config); err != nil {
		return nil, err
	}
	if len(config.Providers) == 0 {
		return nil, errors.New("it has no providers; name at least one")
	}
	return config.Providers, nil
}

// validate reports everything that is wrong.
func validate(all []kubeletv1.CredentialProvider) error {
	var errs []error
	seen := sets.New[string]()
	for i, p := range all {
		wrong := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("provider %d, %q: "+format,
				append([]any{i + 1, p.Name}, args...)...))
		}
		switch {
		case p.Name == "" || p.Name == "." || p.Name == ".." || strings.ContainsAny(p.Name, "/ "):
			wrong("its name must be that of a program, without a path or spaces")
		case seen.Has(p.Name):
			wrong("its name is given twice")
		}
		seen.Insert(p.Name)
		if len(p.MatchImages) == 0 {
			wrong("matchImages must have at least one image")
		}
		for _, pattern := range p.MatchImages {
			if _, err := filepath.Match(pattern, ""); err != nil || pattern == "" {
				wrong("matchImages: %q is not a pattern", pattern)
			}
		}
		if p.DefaultCacheDuration == nil || p.DefaultCacheDuration.Duration < 0 {
			wrong("defaultCacheDuration must be given, 0s or more")
		}
		switch p.APIVersion {
		case group + "v1":
		case group + "v1beta1", group + "v1alpha1":
			if p.TokenAttributes != nil {
				wrong("tokenAttributes need apiVersion %sv1", group)
			}
		default:
			wrong("apiVersion %q is not %sv1, v1beta1 or v1alpha1", p.APIVersion, group)
		}
		if p.TokenAttributes != nil {
			validateToken(p.TokenAttributes, wrong)
		}
	}
	return errors.Join(errs...)
}

func validateToken(t *kubeletv1.ServiceAccountTokenAttributes, wrong func(string, ...any)) {
	if t.ServiceAccountTokenAudience == "" {
		wrong("tokenAttributes.serviceAccountTokenAudience must be given")
	}
	if t.CacheType != kubeletv1.TokenServiceAccountTokenCacheType &&
		t.CacheType != kubeletv1.ServiceAccountServiceAccountTokenCacheType {
		wrong("tokenAttributes.cacheType must be Token or ServiceAccount")
	}
	if t.RequireServiceAccount == nil {
		wrong("tokenAttributes.requireServiceAccount must be true or false")
	} else if !*t.RequireServiceAccount && len(t.RequiredServiceAccountAnnotationKeys) > 0 {
		wrong("tokenAttributes.requiredServiceAccountAnnotationKeys need " +
			"requireServiceAccount: true")
	}
	keys := sets.New[string]()
	for _, key := range slices.Concat(t.RequiredServiceAccountAnnotationKeys,
		t.OptionalServiceAccountAnnotationKeys) {
		if keys.Has(key) {
			wrong("tokenAttributes: annotation key %q is given twice", key)
		}
		keys.Insert(key)
	}
}

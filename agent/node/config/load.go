package config

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "k8s.io/apimachinery/pkg/util/json"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/strictyaml"
)

const (
	apiVersion = "kubelet.config.k8s.io/v1beta1"
	kind       = "KubeletConfiguration"
	// maxFile bounds a file in bytes, far above a file with all fields.
	maxFile = 10 << 20
)

// FromArgs returns the configuration for a command line.
func FromArgs(args []string) (*Config, error) {
	set := pflag.NewFlagSet("numalet", pflag.ContinueOnError)
	flags := AddFlags(set)
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	return Load(set, flags)
}

// Load reads the files that the parsed flags name and returns the effective configuration. Each
// error is one line; it names the file and the field, and says what would be right.
func Load(set *pflag.FlagSet, flags *Flags) (*Config, error) {
	if set.NArg() > 0 {
		return nil, fmt.Errorf("unknown command %q; only flags are accepted, see --help",
			set.Arg(0))
	}
	doc, err := readFiles(flags.own.config, flags.own.dropIns)
	if err != nil {
		return nil, err
	}
	c := &Config{Options: flags.Options}
	if err := kjson.Unmarshal(doc.json, &c.Kubelet); err != nil {
		return nil, fmt.Errorf("merge configuration: %s", strictyaml.OneLine(err.Error()))
	}
	applyDefaults(&c.Kubelet)
	if err := flags.apply(&c.Kubelet); err != nil {
		return nil, err
	}
	if p := &c.Kubelet.StaticPodPath; *p != "" {
		// The path is part of the identity of static pods, so it must not depend on the working
		// directory.
		if *p, err = filepath.Abs(*p); err != nil {
			return nil, fmt.Errorf("resolve staticPodPath: %w", err)
		}
	}
	gates, err := newGates()
	if err != nil {
		return nil, err
	}
	if err := gates.SetFromMap(c.Kubelet.FeatureGates); err != nil {
		return nil, fmt.Errorf("invalid configuration: featureGates: %w", err)
	}
	c.Gates = gates
	gates.AddMetrics() // kubernetes_feature_enabled
	if err := validate(c); err != nil {
		return nil, err
	}
	c.given.unhonoured = unhonoured(c, doc.given, flags)
	c.given.settings = settings(c, doc.given, flags, c.given.unhonoured)
	c.given.flags = map[string]string{}
	set.VisitAll(func(f *pflag.Flag) {
		c.given.flags[f.Name] = f.Value.String()
		switch {
		case f.Name == "manifest-url-header" && f.Changed:
			c.given.flags[f.Name] = masked
		case f.Name == "manifest-url":
			c.given.flags[f.Name] = withoutSecrets(f.Value.String())
		}
		if f.Changed {
			c.given.shown = append(c.given.shown, "--"+f.Name+"="+c.given.flags[f.Name])
		}
	})
	return c, nil
}

// layers holds the merged document, and the paths that the user's files set.
type layers struct {
	json  []byte
	given []string
}

func readFiles(file, dir string) (layers, error) {
	merged := layers{json: []byte(noFileBase)}
	var names []string
	if file != "" {
		merged.json = []byte("{}")
		names = append(names, file)
	}
	if dir != "" {
		more, err := dropIns(dir)
		if err != nil {
			return layers{}, err
		}
		names = append(names, more...)
	}
	for _, name := range names {
		next, err := readFile(name)
		if err != nil {
			return layers{}, err
		}
		merged.json, err = jsonpatch.MergePatch(merged.json, next.json)
		if err == nil && name == file {
			merged.json, err = withEvictionHard(merged.json)
		}
		if err != nil {
			return layers{}, fmt.Errorf("merge config file %s: %w", name, err)
		}
		merged.given = append(merged.given, next.given...)
	}
	slices.Sort(merged.given)
	merged.given = slices.Compact(merged.given)
	return merged, nil
}

// withEvictionHard sets evictionHard if the file of --config has none: as with the kubelet, drop-ins then
// change single thresholds of the default ones.
func withEvictionHard(doc []byte) ([]byte, error) {
	var fields map[string]any
	if err := kjson.Unmarshal(doc, &fields); err != nil {
		return nil, err
	}
	if fields["evictionHard"] == nil {
		fields["evictionHard"] = defaults().EvictionHard
	}
	return kjson.Marshal(fields)
}

// dropIns lists the *.conf files below dir in the lexical order of their paths.
func dropIns(dir string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".conf" {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list --config-dir: %w", err)
	}
	return names, nil
}

// readFile reads one file and checks it against the type. Relative paths in it are resolved against
// its directory.
func readFile(name string) (layers, error) {
	data, err := files.ReadNamed(name, maxFile)
	if err != nil {
		return layers{}, fmt.Errorf("read config file: %w", err)
	}
	doc, err := strictyaml.Parse(data)
	if err != nil {
		return layers{}, fmt.Errorf("config file %s %w", name, err)
	}
	if err := check(doc); err != nil {
		return layers{}, fmt.Errorf("config file %s: %w", name, err)
	}
	given := strictyaml.Check[kubeletv1beta1.KubeletConfiguration](doc).Given
	given = slices.DeleteFunc(given,
		func(p string) bool { return p == "apiVersion" || p == "kind" })
	abs, err := filepath.Abs(name)
	if err != nil {
		return layers{}, fmt.Errorf("config file %s: %w", name, err)
	}
	out, err := resolvePaths(doc, filepath.Dir(abs))
	if err != nil {
		return layers{}, fmt.Errorf("config file %s: %w", name, err)
	}
	return layers{json: out, given: given}, nil
}

func check(doc strictyaml.Document) error {
	gotVersion, gotKind := doc.Kind()
	if gotVersion != apiVersion || gotKind != kind {
		return fmt.Errorf("want apiVersion %q and kind %q, found apiVersion %q and kind %q",
			apiVersion, kind, gotVersion, gotKind)
	}
	if doc.Duplicates != "" {
		return fmt.Errorf("duplicate field: %s; keep one of them", doc.Duplicates)
	}
	findings := strictyaml.Check[kubeletv1beta1.KubeletConfiguration](doc)
	var problems []string
	for _, m := range []strictyaml.Messages{findings.Wrong, findings.Unknown} {
		problems = append(problems, m.First...)
		if m.More > 0 {
			problems = append(problems, fmt.Sprintf("and %d more", m.More))
		}
	}
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "; "))
	}
	return nil
}

// resolvePaths makes the file paths in the fields absolute.
func resolvePaths(doc strictyaml.Document, dir string) ([]byte, error) {
	root := doc.Root()
	for _, field := range []string{
		"staticPodPath", "resolvConf", "tlsCertFile", "tlsPrivateKeyFile",
		"authentication.x509.clientCAFile",
	} {
		keys := strings.Split(field, ".")
		path, _, _ := unstructured.NestedString(root, keys...)
		if path == "" || filepath.IsAbs(path) {
			continue
		}
		err := unstructured.SetNestedField(root, filepath.Join(dir, path), keys...)
		if err != nil {
			return nil, fmt.Errorf("resolve %s: %w", field, err)
		}
	}
	return kjson.Marshal(root)
}

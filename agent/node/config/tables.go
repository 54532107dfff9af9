package config

import (
	_ "embed"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/featuregate"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/internal/strictyaml"
)

//go:embed flags.yaml
var flagsYAML []byte

// fieldFlag is a flag that sets one field of the KubeletConfiguration.
type fieldFlag struct {
	Flag  string `json:"flag"`
	Path  string `json:"path"`
	Usage string `json:"usage"`
}

// section is a group of flags for fields of the configuration file in --help.
type section struct {
	Title string      `json:"title"`
	Flags []fieldFlag `json:"flags"`
}

// sections returns the flags for all fields but those of logging.
var sections = sync.OnceValue(func() []section { return table[[]section](flagsYAML) })

// fieldFlags returns the flags of all sections.
func fieldFlags() (all []fieldFlag) {
	for _, s := range sections() {
		all = append(all, s.Flags...)
	}
	return all
}

//go:embed defaults.yaml
var defaultsYAML []byte

// defaults must not be written to.
var defaults = sync.OnceValue(func() kubeletv1beta1.KubeletConfiguration {
	return table[kubeletv1beta1.KubeletConfiguration](defaultsYAML)
})

//go:embed gates.yaml
var gatesYAML []byte

// gateGroup names feature gates of the same stage and default, separated by spaces.
type gateGroup struct {
	Spec  featuregate.FeatureSpec `json:"spec"`
	Gates string                  `json:"gates"`
}

//go:embed effects.yaml
var effectsYAML []byte

//go:embed limits.yaml
var limitsYAML []byte

// limits holds the accepted values of single fields, by path.
type limits struct {
	Words   map[string][]string           `json:"words"`
	Numbers map[string][2]int64           `json:"numbers"`
	Periods map[string][2]metav1.Duration `json:"periods"`
}

// table parses an embedded file and panics if it is invalid.
func table[T any](text []byte) (out T) {
	if err := strictyaml.Unmarshal(text, &out); err != nil {
		panic(fmt.Sprintf("embedded table of %T: %s", out, err))
	}
	return out
}

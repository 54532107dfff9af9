package watcher

import (
	"context"
	"errors"
	"slices"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Whatever GetInfo answers, the plugin either reaches the handler of its type, unchanged and with a
// path to dial, or is refused with a text that a message can hold.
func FuzzPluginInfo(f *testing.F) {
	for _, info := range []*registerapi.PluginInfo{
		{},
		{
			Type: registerapi.DevicePlugin, Name: "example.com/gpu",
			SupportedVersions: []string{"v1beta1"},
		},
		{Type: registerapi.DevicePlugin, Name: "refused", Endpoint: "/run/work.sock"},
		{
			Type: registerapi.CSIPlugin, Name: "csi", Endpoint: "\x00",
			SupportedVersions: []string{"", "1"},
		},
	} {
		raw, err := proto.Marshal(info)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		info := &registerapi.PluginInfo{}
		if proto.Unmarshal(raw, info) != nil {
			return
		}
		var taken []Plugin
		handlers := map[string]Handler{
			registerapi.DevicePlugin: func(_ context.Context, p Plugin) (*Membership, error) {
				if p.Name == "refused" {
					return nil, errors.New(p.Name + " " + p.Endpoint)
				}
				taken = append(taken, p)
				return &Membership{}, nil
			},
		}
		s := &socket{path: "/registry/a.sock", watcher: &Watcher{cfg: Config{Handlers: handlers}}}
		p := PluginAt(s.path, info)
		member, err := s.takeIn(t.Context(), p)
		in := info.GetType() == registerapi.DevicePlugin && info.GetName() != "refused"
		if (member != nil) != in || (err == nil) != in || len(taken) > 0 != in {
			t.Fatalf("%v is taken in as %+v: %v, %v", info, taken, member, err)
		}
		if !in {
			outcome := &registerapi.RegistrationStatus{Error: err.Error()}
			if _, err := proto.Marshal(outcome); err != nil || !utf8.ValidString(outcome.Error) {
				t.Errorf("%v cannot be told %q: %v", info, outcome.Error, err)
			}
			return
		}
		got := taken[0]
		if got.Endpoint == "" || info.GetEndpoint() != "" && got.Endpoint != info.GetEndpoint() ||
			got.Socket != s.path || got.Name != info.GetName() ||
			!slices.Equal(got.Versions, info.GetSupportedVersions()) {
			t.Errorf("%v is taken in as %+v", info, got)
		}
	})
}

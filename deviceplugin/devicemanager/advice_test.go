package devicemanager

import (
	"slices"
	"strings"
	"testing"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Which part of a preference is followed, and what the error says of the rest.
func TestSift(t *testing.T) {
	const partly = "its preference is not followed in full: "
	for name, tc := range map[string]struct{ preferred, must, want, err string }{
		"as asked": {"c a", "", "c a", ""},
		"twice": {"a a c", "", "a c",
			partly + "it names devices more than once: a"},
		"twice and too few": {"a a", "", "a",
			partly + "it names devices more than once: a; 1 of its devices can be used where 2 " +
				"were asked for"},
		"too many": {"a b c", "", "a b c",
			partly + "3 of its devices can be used where 2 were asked for"},
		"of others": {"a x", "", "a",
			partly + "it names devices that it does not list: x; 1 of its devices can be used " +
				"where 2 were asked for"},
		"unhealthy": {"a e", "", "a",
			partly + "it names unhealthy devices: e; 1 of its devices can be used where 2 were " +
				"asked for"},
		"held by another": {"a d", "", "a",
			partly + "it names devices that were not on offer: d; 1 of its devices can be used " +
				"where 2 were asked for"},
		"without the certain one": {"a b", "c", "a b",
			partly + "it leaves out devices that the container is certain to get: c"},
		"nothing": {"", "", "", partly + "0 of its devices can be used where 2 were asked for"},
	} {
		t.Run(name, func(t *testing.T) {
			req := PreferredRequest{
				Resource: gpu, Available: []string{"a", "b", "c"},
				MustInclude: strings.Fields(tc.must), Size: 2,
			}
			got, err := req.sift(strings.Fields(tc.preferred),
				Resource{Devices: parseDevices(t, "a b c d e!")})
			said := ""
			if err != nil {
				said = err.Error()
			}
			if !slices.Equal(got, strings.Fields(tc.want)) || said != tc.err {
				t.Errorf("%q, %q; want %q, %q", got, said, tc.want, tc.err)
			}
		})
	}
}

// Only the first answer counts: the request asks about one container.
func TestTheFirstAnswerCounts(t *testing.T) {
	got, err := answerOf(&v1beta1.AllocateResponse{
		ContainerResponses: []*v1beta1.ContainerAllocateResponse{
			{Envs: map[string]string{"OF": "first"}}, {Envs: map[string]string{"OF": "second"}},
		},
	})
	if err != nil || got.GetEnvs()["OF"] != "first" {
		t.Errorf("%v, %v", got, err)
	}
}

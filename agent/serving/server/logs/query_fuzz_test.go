package logs

import (
	"bytes"
	"net/url"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
)

// FuzzQuery: a client sends the same options on, and the answer equals that of a simple reader,
// whatever the numbers.
func FuzzQuery(f *testing.F) {
	for _, text := range []string{
		"", "tailLines=2&timestamps=true", "tail=all", "tail=3&follow=1", "tailLines=0&follow",
		"tailLines=-1", "tailLines=9223372036854775807&follow=true", "tailLines=9223372036854775808",
		"limitBytes=1", "limitBytes=12&timestamps=t", "limitBytes=0", "limitBytes=9223372036854775807",
		"sinceSeconds=5", "sinceSeconds=9223372036854775807", "sinceSeconds=-5", "sinceSeconds=0x5",
		"sinceTime=2020-11-22T10:00:03.5Z", "sinceTime=2020-11-22T12:00:03%2b02:00&tailLines=1",
		"sinceTime=", "sinceTime=9999-12-31T23:59:59Z", "sinceTime=x", "sinceSeconds=1&sinceTime=x",
		"stream=Stdout", "stream=Stderr&timestamps=1", "stream=All&tailLines=1", "stream=stdout",
		"stream=", "stream=Stdout&tailLines=1", "previous=yes", "tailLines=&limitBytes=&sinceSeconds=",
		"tail=1&tail=2&tailLines=3", "follow=false&follow=true", "insecureSkipTLSVerifyBackend=x",
	} {
		f.Add(text)
	}
	now := time.Date(2020, 11, 22, 10, 0, 7, 250, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		o, err := query(values)
		if err != nil || !sane(o) {
			return
		}
		if o.SinceTime != nil { // clients send whole seconds, and omit the zero time
			o.SinceTime = ptr.To(o.SinceTime.Rfc3339Copy())
			if o.SinceTime.IsZero() {
				o.SinceTime = nil
			}
		}
		if again := sent(t, o); !apiequality.Semantic.DeepEqual(again, o) {
			t.Errorf("%q: %+v, and when a client sent it %+v", text, o, again)
		}
		var got bytes.Buffer
		if err := threeFiles(t).Copy(t.Context(), &got, options(o, now)); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if want := naive(o, now); got.String() != want {
			t.Errorf("%q: got %q, want %q", text, got.String(), want)
		}
	})
}

// sent returns the options after an API client has encoded and sent them.
func sent(t *testing.T, o v1.PodLogOptions) v1.PodLogOptions {
	t.Helper()
	values, err := scheme.ParameterCodec.EncodeParameters(&o, v1.SchemeGroupVersion)
	if err != nil {
		t.Fatal(err)
	}
	again, err := query(values)
	if err != nil {
		t.Fatalf("%v: %v", values, err)
	}
	return again
}

// naive returns the answer for threeFiles, computed the simple way.
func naive(o v1.PodLogOptions, now time.Time) string {
	var lines []string
	torn := ""
	for n, word := range []string{"zero", "one", "two", "three", "four", "five", "six"} {
		stream := v1.LogStreamStdout
		if n == 1 || n == 4 {
			stream = v1.LogStreamStderr
		}
		written := time.Date(2020, 11, 22, 10, 0, n, 5e8, time.UTC)
		if o.SinceTime != nil && written.Before(o.SinceTime.Time) ||
			o.SinceSeconds != nil && now.Sub(written).Seconds() > float64(*o.SinceSeconds) ||
			o.Stream != nil && *o.Stream != v1.LogStreamAll && *o.Stream != stream {
			continue
		}
		if o.Timestamps {
			word = shown(n) + " " + word
		}
		if n == 6 && o.Follow { // its line is unfinished when the last lines are counted
			torn = word + "\n"
			continue
		}
		lines = append(lines, word+"\n")
	}
	if o.TailLines != nil && *o.TailLines < int64(len(lines)) {
		lines = lines[int64(len(lines))-*o.TailLines:]
	}
	out := strings.Join(lines, "") + torn
	if o.LimitBytes != nil && *o.LimitBytes < int64(len(out)) {
		out = out[:*o.LimitBytes]
	}
	return out
}

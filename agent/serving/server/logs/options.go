package logs

import (
	"errors"
	"net/url"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// query converts a request's options to a v1.PodLogOptions.
func query(q url.Values) (o v1.PodLogOptions, err error) {
	if last := q["tail"]; len(last) > 0 && last[0] != "all" { // sent by old clients
		q["tailLines"] = last
	}
	for name, to := range map[string]*bool{
		"follow": &o.Follow, "previous": &o.Previous, "timestamps": &o.Timestamps,
	} {
		values := q[name]
		err = errors.Join(err, runtime.Convert_Slice_string_To_bool(&values, to, nil))
	}
	for name, to := range map[string]**int64{
		"sinceSeconds": &o.SinceSeconds, "tailLines": &o.TailLines, "limitBytes": &o.LimitBytes,
	} {
		if values := q[name]; len(values) > 0 {
			err = errors.Join(err, runtime.Convert_Slice_string_To_Pointer_int64(&values, to, nil))
		}
	}
	if values := q["sinceTime"]; len(values) > 0 {
		err = errors.Join(err, metav1.Convert_Slice_string_To_Pointer_v1_Time(&values, &o.SinceTime,
			nil))
	}
	if values := q["stream"]; len(values) > 0 {
		o.Stream = &values[0]
	}
	return o, err
}

// sane reports whether the API allows these options.
func sane(o v1.PodLogOptions) bool {
	split := o.Stream != nil && *o.Stream != v1.LogStreamAll
	switch {
	case o.TailLines != nil && *o.TailLines < 0,
		o.LimitBytes != nil && *o.LimitBytes < 1,
		o.SinceSeconds != nil && (*o.SinceSeconds < 1 || o.SinceTime != nil),
		split && *o.Stream != v1.LogStreamStdout && *o.Stream != v1.LogStreamStderr,
		split && o.TailLines != nil:
		return false
	default:
		return true
	}
}

// options resolves the API's options at the time now.
func options(o v1.PodLogOptions, now time.Time) Options {
	out := Options{
		Tail: o.TailLines, Limit: o.LimitBytes, Timestamps: o.Timestamps, Follow: o.Follow,
	}
	switch {
	case o.SinceSeconds != nil:
		out.Since = time.Unix(now.Unix()-*o.SinceSeconds, int64(now.Nanosecond())) // accepts any number
	case o.SinceTime != nil:
		out.Since = o.SinceTime.Time
	}
	if o.Stream != nil {
		out.Stream = map[string]string{
			v1.LogStreamStdout: "stdout", v1.LogStreamStderr: "stderr",
		}[*o.Stream]
	}
	return out
}

package tenancy

import (
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/config"
)

func TestCheckPattern(t *testing.T) {
	t.Parallel()
	for pattern, refused := range map[string]string{
		"https://github.com/acme/*":                      "",
		"https://github.com/acme/**":                     "",
		"ssh://git@github.com/acme/dev-team":             "",
		"oci://*.example.com/charts":                     "",
		"github.com/acme":                                "such as https://",
		"acme":                                           "such as https://",
		"":                                               "such as https://",
		"git://github.com/acme":                          "such as https://",
		"https://a:b@github.com/acme":                    "such as https://",
		"https://github.com/acme?a=b":                    "such as https://",
		"https://github.com/(acme|other)":                "such as https://",
		"https://github.com/../acme":                     "must not have .. in it",
		"https://*":                                      "top-level domain",
		"https://example.*/acme":                         "top-level domain",
		"https://github.com/**/acme":                     "at its end only",
		"https://github.com/acme**":                      "at its end only",
		"https://github.com/" + strings.Repeat("a", 600): "such as https://",
	} {
		err := CheckPattern(pattern)
		if refused == "" && err != nil || refused != "" && (err == nil || !strings.Contains(err.Error(), refused)) {
			t.Errorf("%s: want %q, got %v", pattern, refused, err)
		}
	}
	if !strings.Contains(string(config.CRDs()), addressPattern.String()) {
		t.Error("the schema has another pattern")
	}
}

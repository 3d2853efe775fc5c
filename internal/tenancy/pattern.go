package tenancy

import (
	"errors"
	"regexp"
	"strings"
)

// addressPattern, lastLabelStar and innerStars are the checks of a pattern in the schema
// of a TenancyProfile; a test compares them.
var (
	addressPattern = regexp.MustCompile(`^(https?|ssh|oci)://([a-z0-9_-]+@)?[a-z0-9*]([a-z0-9.*-]*[a-z0-9*])?(:[0-9]{1,5})?(/[A-Za-z0-9._~*-]+)*/?(/\*\*)?$`)
	lastLabelStar  = regexp.MustCompile(`^[a-z]+://[^/]*[*][^/.]*(/|$)`)
	innerStars     = regexp.MustCompile(`[*][*].|[^/][*][*]`)
)

const maxPattern = 512

// CheckPattern returns an error if a text is not a valid pattern of addresses: see
// v1alpha1.AddressPattern.
func CheckPattern(pattern string) error {
	switch {
	case len(pattern) > maxPattern || !addressPattern.MatchString(pattern):
		return errors.New("it must be an address such as https://github.com/acme/*, with https, http, ssh or oci, and without a query")
	case strings.Contains(pattern, ".."):
		return errors.New("it must not have .. in it")
	case lastLabelStar.MatchString(pattern):
		return errors.New("it must not have a * in the last label of its host: everything under a top-level domain would match")
	case innerStars.MatchString(pattern):
		return errors.New("it may have ** at its end only, as /**")
	}
	return nil
}

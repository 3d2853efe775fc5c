package capsule

import "regexp"

// tenantVariable is the variable of Capsule's templates for the name of the tenant.
var tenantVariable = regexp.MustCompile(`\{\{ *tenant[.]name *\}\}`)

// expand returns a value of metadata with the name of the tenant in the place of its variable.
func (t *translation) expand(value string) string {
	return tenantVariable.ReplaceAllLiteralString(value, t.tenant.Name)
}

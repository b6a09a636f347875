# Prints a program of docs/quick-start.md: awk -v section=C++ -v number=1 -f program.awk docs/quick-start.md
/^## / { here = $0 == "## " section; next }
here && /^```/ {
  inside = !inside
  found += inside
  next
}
here && inside && found == number

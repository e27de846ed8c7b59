module kamino.dev/kamino

go 1.26.0

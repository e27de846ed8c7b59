module kamino.dev/kamino/lab

go 1.26.0

replace kamino.dev/kamino => ../

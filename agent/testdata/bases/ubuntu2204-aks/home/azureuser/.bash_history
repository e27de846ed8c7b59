az login --service-principal -p hunter2hunter2

package tiertest

var leaseDefects = []defect{}

; What `stub.py` says, in instructions: the calls of Python's and NumPy's functions, and the way to the code of an operator.
target triple = "<TRIPLE>"

@tl_array_type = external global i8
@tl_dict_type = external global i8
@tl_refused = external global i8
declare ptr @tl_new_array(ptr, ptr, i32, ptr, ptr, ptr, i32, ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyLong_FromLong(i64)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyDict_New()
declare i64 @PyDict_Size(ptr)
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare i32 @PyDict_SetItem(ptr, ptr, ptr)
declare ptr @PyErr_Occurred()
declare void @PyErr_Restore(ptr, ptr, ptr)
@tl_raised = external global [3 x ptr]

; Whether an object is an array of just the dtype and shape of a port, dense and aligned, or a number that the port takes.
define internal i1 @fits(ptr %o, ptr %port) nounwind {
entry:
  %tp = getelementptr i8, ptr %o, i64 8
  %type = load ptr, ptr %tp, align 8
  %array = icmp eq ptr %type, @tl_array_type
  br i1 %array, label %look, label %other
other:
  %kind = call i32 @number_kind(ptr %o, ptr %port)
  %number = icmp ne i32 %kind, 0
  ret i1 %number
look:
  %dp = getelementptr i8, ptr %o, i64 56
  %descr = load ptr, ptr %dp, align 8
  %wanted = load ptr, ptr %port, align 8
  %same = icmp eq ptr %descr, %wanted
  %np = getelementptr i8, ptr %o, i64 24
  %rank32 = load i32, ptr %np, align 8
  %rank = sext i32 %rank32 to i64
  %rp = getelementptr i64, ptr %port, i64 1
  %wanted_rank = load i64, ptr %rp, align 8
  %ranks = icmp eq i64 %rank, %wanted_rank
  %fp = getelementptr i8, ptr %o, i64 64
  %flags = load i32, ptr %fp, align 8
  %dense = and i32 %flags, 257
  %both = icmp eq i32 %dense, 257
  %a = and i1 %same, %ranks
  %b = and i1 %a, %both
  br i1 %b, label %shape, label %no
shape:
  %sp = getelementptr i8, ptr %o, i64 32
  %extents = load ptr, ptr %sp, align 8
  %wp = getelementptr i64, ptr %port, i64 2
  %wanted_extents = load ptr, ptr %wp, align 8
  br label %axis
axis:
  %k = phi i64 [ 0, %shape ], [ %k1, %equal ]
  %more = icmp slt i64 %k, %rank
  br i1 %more, label %compare, label %yes
compare:
  %ep = getelementptr i64, ptr %extents, i64 %k
  %e = load i64, ptr %ep, align 8
  %xp = getelementptr i64, ptr %wanted_extents, i64 %k
  %x = load i64, ptr %xp, align 8
  %k1 = add i64 %k, 1
  %is = icmp eq i64 %e, %x
  br i1 %is, label %equal, label %no
equal:
  br label %axis
yes:
  ret i1 true
no:
  ret i1 false
}

define internal void @drop(ptr %results, i64 %count) nounwind {
entry:
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k1, %one ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %one, label %done
one:
  %p = getelementptr ptr, ptr %results, i64 %k
  %o = load ptr, ptr %p, align 8
  call void @Py_DecRef(ptr %o)
  %k1 = add i64 %k, 1
  br label %next
done:
  ret void
}

define internal ptr @refused() nounwind {
entry:
  call void @Py_IncRef(ptr @tl_refused)
  ret ptr @tl_refused
}

define i64 @tl_take(ptr %place) nounwind {
entry:
  %address = atomicrmw xchg ptr %place, i64 0 acquire
  ret i64 %address
}

; Run on arrays that fit. Returns null with the outputs in %results, those in %given or new ones where that is null; or what the stub is to
; return instead: refused, a number, or (void*)-1 after an exception.
define internal ptr @launch(ptr %d, ptr %args, ptr %given, ptr %results) nounwind {
entry:
  %entry_code = load ptr, ptr %d, align 8
  %op = getelementptr i64, ptr %d, i64 1
  %outputs = load i64, ptr %op, align 8
  %ip = getelementptr i64, ptr %d, i64 2
  %inputs = load i64, ptr %ip, align 8
  %rp = getelementptr i64, ptr %d, i64 3
  %rest = load i64, ptr %rp, align 8
  %slotp = getelementptr i64, ptr %d, i64 4
  %scratch_slot = load ptr, ptr %slotp, align 8
  %np = getelementptr i64, ptr %d, i64 5
  %needs = load i64, ptr %np, align 8
  %ports = getelementptr i64, ptr %d, i64 8
  %n0 = add i64 %outputs, %inputs
  %n1 = add i64 %n0, %rest
  %n2 = add i64 %n1, 1
  %bases = alloca i64, i64 %n2, align 8
  %slots = alloca i64, i64 %inputs, align 8
  %fresh = icmp eq ptr %given, null
  br label %make
make:
  %k = phi i64 [ 0, %entry ], [ %k1, %made ]
  %more = icmp slt i64 %k, %outputs
  br i1 %more, label %one, label %take_inputs
one:
  br i1 %fresh, label %new, label %take
take:
  %gp = getelementptr ptr, ptr %given, i64 %k
  %g = load ptr, ptr %gp, align 8
  call void @Py_IncRef(ptr %g)
  br label %made
new:
  %off = mul i64 %k, 6
  %port = getelementptr i64, ptr %ports, i64 %off
  %descr = load ptr, ptr %port, align 8
  %rankp = getelementptr i64, ptr %port, i64 1
  %rank = load i64, ptr %rankp, align 8
  %rank32 = trunc i64 %rank to i32
  %extentsp = getelementptr i64, ptr %port, i64 2
  %extents = load ptr, ptr %extentsp, align 8
  call void @Py_IncRef(ptr %descr)
  %n = call ptr @tl_new_array(ptr @tl_array_type, ptr %descr, i32 %rank32, ptr %extents, ptr null, ptr null, i32 0, ptr null)
  %none = icmp eq ptr %n, null
  br i1 %none, label %failed, label %made
made:
  %o = phi ptr [ %g, %take ], [ %n, %new ]
  %slot = getelementptr ptr, ptr %results, i64 %k
  store ptr %o, ptr %slot, align 8
  %datap = getelementptr i8, ptr %o, i64 16
  %data = load i64, ptr %datap, align 8
  %base = getelementptr i64, ptr %bases, i64 %k
  store i64 %data, ptr %base, align 8
  %k1 = add i64 %k, 1
  br label %make
failed:
  call void @drop(ptr %results, i64 %k)
  ret ptr inttoptr (i64 -1 to ptr)
take_inputs:
  br label %input
input:
  %i = phi i64 [ 0, %take_inputs ], [ %i1, %based ]
  %more_in = icmp slt i64 %i, %inputs
  br i1 %more_in, label %put, label %take_rest
put:
  %ap = getelementptr ptr, ptr %args, i64 %i
  %a = load ptr, ptr %ap, align 8
  %at = add i64 %i, %outputs
  %atp = getelementptr i8, ptr %a, i64 8
  %atype = load ptr, ptr %atp, align 8
  %anarray = icmp eq ptr %atype, @tl_array_type
  br i1 %anarray, label %array, label %scalar
array:
  %adp = getelementptr i8, ptr %a, i64 16
  %adata = load ptr, ptr %adp, align 8
  br label %based
scalar:
  %aoff = mul i64 %at, 6
  %aport = getelementptr i64, ptr %ports, i64 %aoff
  %aslot = getelementptr i64, ptr %slots, i64 %i
  %element = call ptr @number_at(ptr %a, ptr %aport, ptr %aslot)
  %lost = icmp eq ptr %element, null
  br i1 %lost, label %busy, label %based
based:
  %address = phi ptr [ %adata, %array ], [ %element, %scalar ]
  %abase = getelementptr i64, ptr %bases, i64 %at
  store ptr %address, ptr %abase, align 8
  %i1 = add i64 %i, 1
  br label %input
take_rest:
  %portwords = mul i64 %n0, 6
  %words = getelementptr i64, ptr %ports, i64 %portwords
  br label %word
word:
  %w = phi i64 [ 0, %take_rest ], [ %w1, %copy ]
  %more_words = icmp slt i64 %w, %rest
  br i1 %more_words, label %copy, label %memory
copy:
  %wp = getelementptr i64, ptr %words, i64 %w
  %wv = load i64, ptr %wp, align 8
  %wat = add i64 %n0, %w
  %wbase = getelementptr i64, ptr %bases, i64 %wat
  store i64 %wv, ptr %wbase, align 8
  %w1 = add i64 %w, 1
  br label %word
memory:
  %wants = icmp ne i64 %needs, 0
  br i1 %wants, label %claim, label %run
claim:
  %mine = atomicrmw xchg ptr %scratch_slot, i64 0 acquire
  %taken = icmp eq i64 %mine, 0
  br i1 %taken, label %busy, label %measure
measure:
  %roomp = getelementptr i64, ptr %scratch_slot, i64 1
  %room = load i64, ptr %roomp, align 8
  %short = icmp slt i64 %room, %needs
  br i1 %short, label %back, label %run
back:
  store atomic i64 %mine, ptr %scratch_slot release, align 8
  br label %busy
busy:
  call void @drop(ptr %results, i64 %outputs)
  %r0 = call ptr @refused()
  ret ptr %r0
run:
  %scratch = phi i64 [ 0, %memory ], [ %mine, %measure ]
  %last = getelementptr i64, ptr %bases, i64 %n1
  store i64 %scratch, ptr %last, align 8
  %poolp = getelementptr i64, ptr %d, i64 6
  %pool = load ptr, ptr %poolp, align 8
  %callp = getelementptr i64, ptr %d, i64 7
  %on_pool = load ptr, ptr %callp, align 8
  %alone = icmp eq ptr %pool, null
  %state = call ptr @PyEval_SaveThread()
  br i1 %alone, label %plainly, label %entered
plainly:
  %code0 = call i32 %entry_code(ptr %bases)
  br label %returned
entered:
  %code1 = call i32 %on_pool(ptr %entry_code, ptr %bases, ptr %pool)
  br label %returned
returned:
  %code = phi i32 [ %code0, %plainly ], [ %code1, %entered ]
  call void @PyEval_RestoreThread(ptr %state)
  br i1 %wants, label %give, label %check
give:
  store atomic i64 %scratch, ptr %scratch_slot release, align 8
  br label %check
check:
  %good = icmp eq i32 %code, 0
  br i1 %good, label %done, label %bad
bad:
  call void @drop(ptr %results, i64 %outputs)
  %stopped = icmp eq i32 %code, <STOPPED>
  br i1 %stopped, label %interrupted, label %numbered
interrupted:
  %valuep = getelementptr ptr, ptr @tl_raised, i64 1
  %tracep = getelementptr ptr, ptr @tl_raised, i64 2
  %kind = load ptr, ptr @tl_raised, align 8
  %value = load ptr, ptr %valuep, align 8
  %trace = load ptr, ptr %tracep, align 8
  call void @PyErr_Restore(ptr %kind, ptr %value, ptr %trace)
  ret ptr inttoptr (i64 -1 to ptr)
numbered:
  %wide = zext i32 %code to i64
  %number = call ptr @PyLong_FromLong(i64 %wide)
  ret ptr %number
done:
  ret ptr null
}

; Whether each of %count arrays is what the description says of its port, the first of them of port %first.
define internal i1 @all_fit(ptr %d, ptr %args, i64 %first, i64 %count) nounwind {
entry:
  %ports = getelementptr i64, ptr %d, i64 8
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %look ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %yes
look:
  %ap = getelementptr ptr, ptr %args, i64 %i
  %a = load ptr, ptr %ap, align 8
  %k = add i64 %first, %i
  %off = mul i64 %k, 6
  %port = getelementptr i64, ptr %ports, i64 %off
  %ok = call i1 @fits(ptr %a, ptr %port)
  %i1 = add i64 %i, 1
  br i1 %ok, label %next, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; Whether the first %outputs of %count arrays that fit can be written to, and share no memory with another.
define internal i1 @apart(ptr %d, ptr %args, i64 %outputs, i64 %count) nounwind {
entry:
  %ports = getelementptr i64, ptr %d, i64 8
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k1, %alone ]
  %more = icmp slt i64 %k, %outputs
  br i1 %more, label %look, label %yes
look:
  %op = getelementptr ptr, ptr %args, i64 %k
  %o = load ptr, ptr %op, align 8
  %fp = getelementptr i8, ptr %o, i64 64
  %flags = load i32, ptr %fp, align 8
  %writeable = and i32 %flags, 1024
  %writes = icmp ne i32 %writeable, 0
  %op0 = getelementptr i8, ptr %o, i64 16
  %start = load i64, ptr %op0, align 8
  %off = mul i64 %k, 6
  %bp = getelementptr i64, ptr %ports, i64 %off
  %bytesp = getelementptr i64, ptr %bp, i64 4
  %bytes = load i64, ptr %bytesp, align 8
  %end = add i64 %start, %bytes
  %k1 = add i64 %k, 1
  br i1 %writes, label %other, label %no
other:
  %j = phi i64 [ %k1, %look ], [ %j1, %compare ]
  %left = icmp slt i64 %j, %count
  br i1 %left, label %compare, label %alone
compare:
  %ap = getelementptr ptr, ptr %args, i64 %j
  %a = load ptr, ptr %ap, align 8
  %ap0 = getelementptr i8, ptr %a, i64 16
  %astart = load i64, ptr %ap0, align 8
  %aoff = mul i64 %j, 6
  %abp = getelementptr i64, ptr %ports, i64 %aoff
  %abytesp = getelementptr i64, ptr %abp, i64 4
  %abytes = load i64, ptr %abytesp, align 8
  %aend = add i64 %astart, %abytes
  %before = icmp uge i64 %astart, %end
  %behind = icmp uge i64 %start, %aend
  %separate = or i1 %before, %behind
  %j1 = add i64 %j, 1
  br i1 %separate, label %other, label %no
alone:
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
}

; Run on arrays, and return what the stub is to return: what %pack (description, results) makes of the outputs, or why there are none.
define internal ptr @answer(ptr %d, ptr %args, ptr %pack) nounwind {
entry:
  %op = getelementptr i64, ptr %d, i64 1
  %outputs = load i64, ptr %op, align 8
  %results = alloca ptr, i64 %outputs, align 8
  %ip = getelementptr i64, ptr %d, i64 2
  %inputs = load i64, ptr %ip, align 8
  %fit = call i1 @all_fit(ptr %d, ptr %args, i64 %outputs, i64 %inputs)
  br i1 %fit, label %go, label %no
no:
  %r0 = call ptr @refused()
  ret ptr %r0
go:
  %r = call ptr @launch(ptr %d, ptr %args, ptr null, ptr %results)
  %p = call ptr @told(ptr %d, ptr %r, ptr %results, ptr %pack)
  ret ptr %p
}

; What the stub is to return for what @launch did.
define internal ptr @told(ptr %d, ptr %r, ptr %results, ptr %pack) nounwind {
entry:
  %good = icmp eq ptr %r, null
  br i1 %good, label %packed, label %other
packed:
  %p = call ptr %pack(ptr %d, ptr %results)
  ret ptr %p
other:
  %raised = icmp eq ptr %r, inttoptr (i64 -1 to ptr)
  %out = select i1 %raised, ptr null, ptr %r
  ret ptr %out
}

; The one result, or the tuple of several.
define internal ptr @tuple(ptr %d, ptr %results) nounwind {
entry:
  %op = getelementptr i64, ptr %d, i64 1
  %outputs = load i64, ptr %op, align 8
  %single = icmp eq i64 %outputs, 1
  br i1 %single, label %one, label %several
one:
  %only = load ptr, ptr %results, align 8
  ret ptr %only
several:
  %tuple = call ptr @PyTuple_New(i64 %outputs)
  %none = icmp eq ptr %tuple, null
  br i1 %none, label %lost, label %fill
lost:
  call void @drop(ptr %results, i64 %outputs)
  ret ptr null
fill:
  %j = phi i64 [ 0, %several ], [ %j1, %set ]
  %left = icmp slt i64 %j, %outputs
  br i1 %left, label %set, label %full
set:
  %sp = getelementptr ptr, ptr %results, i64 %j
  %s = load ptr, ptr %sp, align 8
  %done = call i32 @PyTuple_SetItem(ptr %tuple, i64 %j, ptr %s)
  %j1 = add i64 %j, 1
  br label %fill
full:
  ret ptr %tuple
}

; The dictionary of results by their names.
define internal ptr @dictionary(ptr %d, ptr %results) nounwind {
entry:
  %op = getelementptr i64, ptr %d, i64 1
  %outputs = load i64, ptr %op, align 8
  %ports = getelementptr i64, ptr %d, i64 8
  %answer = call ptr @PyDict_New()
  %none = icmp eq ptr %answer, null
  br i1 %none, label %lost, label %fill
lost:
  call void @drop(ptr %results, i64 %outputs)
  ret ptr null
fill:
  %j = phi i64 [ 0, %entry ], [ %j1, %set ]
  %bad = phi i32 [ 0, %entry ], [ %bad1, %set ]
  %left = icmp slt i64 %j, %outputs
  br i1 %left, label %set, label %full
set:
  %off = mul i64 %j, 6
  %port = getelementptr i64, ptr %ports, i64 %off
  %namep = getelementptr i64, ptr %port, i64 3
  %name = load ptr, ptr %namep, align 8
  %sp = getelementptr ptr, ptr %results, i64 %j
  %s = load ptr, ptr %sp, align 8
  %done = call i32 @PyDict_SetItem(ptr %answer, ptr %name, ptr %s)
  %bad1 = or i32 %bad, %done
  %j1 = add i64 %j, 1
  br label %fill
full:
  call void @drop(ptr %results, i64 %outputs)
  %fine = icmp eq i32 %bad, 0
  br i1 %fine, label %give, label %spoilt
give:
  ret ptr %answer
spoilt:
  call void @Py_DecRef(ptr %answer)
  ret ptr null
}

define ptr @tl_positional(ptr %self, ptr %args, i64 %count) nounwind {
entry:
  %dp = getelementptr i8, ptr %self, i64 16
  %d = load ptr, ptr %dp, align 8
  %ip = getelementptr i64, ptr %d, i64 2
  %inputs = load i64, ptr %ip, align 8
  %right = icmp eq i64 %count, %inputs
  br i1 %right, label %go, label %no
no:
  %r0 = call ptr @refused()
  ret ptr %r0
go:
  %r = call ptr @answer(ptr %d, ptr %args, ptr @tuple)
  ret ptr %r
}

define ptr @tl_into(ptr %self, ptr %args, i64 %count) nounwind {
entry:
  %dp = getelementptr i8, ptr %self, i64 16
  %d = load ptr, ptr %dp, align 8
  %op = getelementptr i64, ptr %d, i64 1
  %outputs = load i64, ptr %op, align 8
  %ip = getelementptr i64, ptr %d, i64 2
  %inputs = load i64, ptr %ip, align 8
  %all = add i64 %outputs, %inputs
  %results = alloca ptr, i64 %outputs, align 8
  %right = icmp eq i64 %count, %all
  br i1 %right, label %look, label %no
look:
  %fit = call i1 @all_fit(ptr %d, ptr %args, i64 0, i64 %all)
  br i1 %fit, label %compare, label %no
compare:
  %free = call i1 @apart(ptr %d, ptr %args, i64 %outputs, i64 %all)
  br i1 %free, label %go, label %no
no:
  %r0 = call ptr @refused()
  ret ptr %r0
go:
  %reads = getelementptr ptr, ptr %args, i64 %outputs
  %r = call ptr @launch(ptr %d, ptr %reads, ptr %args, ptr %results)
  %p = call ptr @told(ptr %d, ptr %r, ptr %results, ptr @tuple)
  ret ptr %p
}

define ptr @tl_named(ptr %self, ptr %feeds) nounwind {
entry:
  %dp = getelementptr i8, ptr %self, i64 16
  %d = load ptr, ptr %dp, align 8
  %op = getelementptr i64, ptr %d, i64 1
  %outputs = load i64, ptr %op, align 8
  %ip = getelementptr i64, ptr %d, i64 2
  %inputs = load i64, ptr %ip, align 8
  %held = alloca ptr, i64 %inputs, align 8
  %ports = getelementptr i64, ptr %d, i64 8
  %tp = getelementptr i8, ptr %feeds, i64 8
  %type = load ptr, ptr %tp, align 8
  %dict = icmp eq ptr %type, @tl_dict_type
  br i1 %dict, label %measure, label %no
measure:
  %size = call i64 @PyDict_Size(ptr %feeds)
  %right = icmp eq i64 %size, %inputs
  br i1 %right, label %next, label %no
next:
  %i = phi i64 [ 0, %measure ], [ %i1, %there ]
  %more = icmp slt i64 %i, %inputs
  br i1 %more, label %look, label %go
look:
  %k = add i64 %outputs, %i
  %off = mul i64 %k, 6
  %port = getelementptr i64, ptr %ports, i64 %off
  %namep = getelementptr i64, ptr %port, i64 3
  %name = load ptr, ptr %namep, align 8
  %a = call ptr @PyDict_GetItemWithError(ptr %feeds, ptr %name)
  %missing = icmp eq ptr %a, null
  br i1 %missing, label %absent, label %there
there:
  call void @Py_IncRef(ptr %a)
  %hp = getelementptr ptr, ptr %held, i64 %i
  store ptr %a, ptr %hp, align 8
  %i1 = add i64 %i, 1
  br label %next
absent:
  call void @drop(ptr %held, i64 %i)
  %problem = call ptr @PyErr_Occurred()
  %calm = icmp eq ptr %problem, null
  br i1 %calm, label %no, label %raised
raised:
  ret ptr null
no:
  %r0 = call ptr @refused()
  ret ptr %r0
go:
  %r = call ptr @answer(ptr %d, ptr %held, ptr @dictionary)
  call void @drop(ptr %held, i64 %inputs)
  ret ptr %r
}

; What `stub_numbers.py` says, in instructions; it follows `stub.ll` in one module.
@tl_float_type = external global i8
@tl_double_type = external global i8
@tl_integer_type = external global i8
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare double @llvm.fabs.f64(double)

; Which number an object is to a port: 0 none that it takes, 1 a scalar of its dtype, 2 a float, 3 an integer.
define internal i32 @number_kind(ptr %o, ptr %port) nounwind {
entry:
  %takenp = getelementptr i64, ptr %port, i64 5
  %taken = load i64, ptr %takenp, align 8
  %some = icmp ne i64 %taken, 0
  br i1 %some, label %look, label %none
look:
  %tp = getelementptr i8, ptr %o, i64 8
  %type = load ptr, ptr %tp, align 8
  %descr = load ptr, ptr %port, align 8
  %scalarp = getelementptr i8, ptr %descr, i64 16
  %scalar = load ptr, ptr %scalarp, align 8
  %own = icmp eq ptr %type, %scalar
  br i1 %own, label %one, label %python
python:
  %isfloat = icmp eq ptr %type, @tl_float_type
  %isdouble = icmp eq ptr %type, @tl_double_type
  %real = or i1 %isfloat, %isdouble
  %f64 = icmp eq i64 %taken, 2
  %f32 = icmp eq i64 %taken, 3
  %rounds = or i1 %f64, %f32
  %float = and i1 %real, %rounds
  br i1 %float, label %two, label %whole
whole:
  %isinteger = icmp eq ptr %type, @tl_integer_type
  %named = icmp uge i64 %taken, 2
  %integer = and i1 %isinteger, %named
  %kind = select i1 %integer, i32 3, i32 0
  ret i32 %kind
one:
  ret i32 1
two:
  ret i32 2
none:
  ret i32 0
}

; The address of the element that a number is, which may be in %slot; null for a number that its dtype does not hold.
define internal ptr @number_at(ptr %o, ptr %port, ptr %slot) nounwind {
entry:
  %beyond = alloca i32, align 4
  %takenp = getelementptr i64, ptr %port, i64 5
  %taken = load i64, ptr %takenp, align 8
  %kind = call i32 @number_kind(ptr %o, ptr %port)
  %behind = getelementptr i8, ptr %o, i64 16
  switch i32 %kind, label %none [ i32 1, label %there
                                  i32 2, label %float
                                  i32 3, label %integer ]
there:
  ret ptr %behind
float:
  %double = icmp eq i64 %taken, 2
  br i1 %double, label %there, label %round
round:
  %d = load double, ptr %behind, align 8
  %f = fptrunc double %d to float
  %back = fpext float %f to double
  %size = call double @llvm.fabs.f64(double %back)
  %before = call double @llvm.fabs.f64(double %d)
  %infinite = fcmp oeq double %size, 0x7FF0000000000000
  %finite = fcmp one double %before, 0x7FF0000000000000
  %lost = and i1 %infinite, %finite
  br i1 %lost, label %none, label %rounded
rounded:
  store float %f, ptr %slot, align 8
  ret ptr %slot
integer:
  %v = call i64 @PyLong_AsLongLongAndOverflow(ptr %o, ptr %beyond)
  %over = load i32, ptr %beyond, align 4
  %held = icmp eq i32 %over, 0
  br i1 %held, label %convert, label %none
convert:
  switch i64 %taken, label %fit [ i64 2, label %to64
                                  i64 3, label %to32 ]
to64:
  %v64 = sitofp i64 %v to double
  store double %v64, ptr %slot, align 8
  ret ptr %slot
to32:
  %v32 = sitofp i64 %v to float
  store float %v32, ptr %slot, align 8
  ret ptr %slot
fit:
  %bytesp = getelementptr i64, ptr %port, i64 4
  %bytes = load i64, ptr %bytesp, align 8
  %bits = shl i64 %bytes, 3
  %above = sub i64 64, %bits
  %moved = shl i64 %v, %above
  %signed = ashr i64 %moved, %above
  %unsigned = lshr i64 %moved, %above
  %is_signed = icmp eq i64 %taken, 4
  %back64 = select i1 %is_signed, i64 %signed, i64 %unsigned
  %same = icmp eq i64 %back64, %v
  %negative = icmp slt i64 %v, 0
  %wrong = icmp ugt i1 %negative, %is_signed
  %right = xor i1 %wrong, true
  %fits = and i1 %same, %right
  br i1 %fits, label %whole, label %none
whole:
  store i64 %v, ptr %slot, align 8
  ret ptr %slot
none:
  ret ptr null
}

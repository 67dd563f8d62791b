// Blurs an image from Rust: the header's structures are written down once more, and a type keeps the context.
use std::ffi::{c_char, c_int, c_void, CStr};
use std::ptr::{null, null_mut};

#[repr(C)]
struct Inputs {
    h: i64,
    w: i64,
    image: *const f32,
}

#[repr(C)]
struct Outputs {
    y: *mut f32,
}

#[repr(C)]
struct Options {
    header: u64,
    threads: i64,
    pinned: i64,
    weights: *const c_void,
    weights_bytes: u64,
    weights_path: *const c_char,
    parallel_for: *const c_void,
    user: *mut c_void,
}

#[link(name = "blur", kind = "static")]
extern "C" {
    fn blur_create_with(context: *mut *mut c_void, options: *const Options) -> c_int;
    fn blur_run(context: *mut c_void, inputs: *const Inputs, outputs: *const Outputs) -> c_int;
    fn blur_destroy(context: *mut c_void);
    fn blur_extents(sizes: *const Inputs, extents: *mut i64) -> c_int;
    fn blur_error_text(code: c_int) -> *const c_char;
}

const INTERFACE: &str = env!("BLUR_INTERFACE"); // of the header

fn checked(code: c_int) -> Result<(), String> {
    if code == 0 {
        return Ok(());
    }
    Err(unsafe { CStr::from_ptr(blur_error_text(code)) }.to_string_lossy().into_owned())
}

struct Blur(*mut c_void);

impl Blur {
    fn new(threads: i64) -> Result<Blur, String> {
        let header = u64::from_str_radix(INTERFACE, 16).map_err(|e| e.to_string())?;
        let options = Options {
            header,
            threads,
            pinned: 0,
            weights: null(),
            weights_bytes: 0,
            weights_path: null(),
            parallel_for: null(),
            user: null_mut(),
        };
        let mut context = null_mut();
        checked(unsafe { blur_create_with(&mut context, &options) })?;
        Ok(Blur(context))
    }

    fn run(&mut self, image: &[f32], h: usize, w: usize) -> Result<Vec<f32>, String> {
        let mut inputs = Inputs { h: h as i64, w: w as i64, image: null() };
        let mut extents = [0i64; 4];
        checked(unsafe { blur_extents(&inputs, extents.as_mut_ptr()) })?;
        if image.len() as i64 != extents[0] * extents[1] {
            return Err("the image has another size".into());
        }
        let mut y = vec![0f32; (extents[2] * extents[3]) as usize];
        inputs.image = image.as_ptr();
        let outputs = Outputs { y: y.as_mut_ptr() };
        checked(unsafe { blur_run(self.0, &inputs, &outputs) })?;
        Ok(y)
    }
}

impl Drop for Blur {
    fn drop(&mut self) {
        unsafe { blur_destroy(self.0) }
    }
}

fn main() -> Result<(), String> {
    let (h, w) = (480, 640);
    let image: Vec<f32> = (0..h * w).map(|k| (k % w) as f32).collect();
    let mut blur = Blur::new(2)?;
    let y = blur.run(&image, h, w)?;
    println!("sum {:.0}", y.iter().map(|&v| v as f64).sum::<f64>());
    println!("{}", blur.run(&image, h, 1).unwrap_err());
    Ok(())
}

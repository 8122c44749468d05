//! Modules and libraries: code that a program loaded, the kernels and variables in it.
//!
//! A module belongs to a context; its variables take device memory at once. A library belongs to none: it becomes a
//! module of each context in which one of its kernels or variables is first used.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::sync::Arc;

use crate::code::{Answer, Code};
use crate::handle::Handle;
use crate::image::Image;
use crate::memory::Kind;
use crate::state::State;

/// A module in a context.
#[derive(Debug)]
pub(crate) struct Module {
    context: Handle,
    image: Arc<Image>,
    functions: HashMap<Arc<str>, Handle>,
    /// Address and bytes of each variable.
    variables: HashMap<String, (u64, u64)>,
}

/// A kernel of a module.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) module: Handle,
    pub(crate) context: Handle,
    pub(crate) name: Arc<str>,
    /// Bytes of dynamic shared memory that a launch may ask for.
    pub(crate) max_dynamic_shared: i32,
    /// The other attributes that the program set.
    pub(crate) attributes: BTreeMap<i32, i32>,
}

/// Code that belongs to no context.
#[derive(Debug)]
pub(crate) struct Library {
    image: Arc<Image>,
    /// The module in each context that uses it.
    modules: HashMap<Handle, Handle>,
    kernels: HashMap<Arc<str>, Handle>,
}

/// A kernel of a library.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    pub(crate) library: Handle,
    pub(crate) name: Arc<str>,
}

/// All code of this process.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    modules: BTreeMap<Handle, Module>,
    pub(crate) functions: BTreeMap<Handle, Function>,
    libraries: BTreeMap<Handle, Library>,
    pub(crate) kernels: BTreeMap<Handle, Kernel>,
    /// Names that were handed to the program.
    pub(crate) c_names: HashMap<Arc<str>, CString>,
}

/// Bytes of dynamic shared memory that a kernel may have unless it asked for more.
pub(crate) const DEFAULT_SHARED: i32 = 48 << 10;

impl State {
    /// Loads an image into a context.
    pub(crate) fn load_module(&mut self, context: Handle, image: Arc<Image>) -> Answer<Handle> {
        let handle = self.handles.next();
        let module = Module {
            context,
            image: image.clone(),
            functions: HashMap::new(),
            variables: HashMap::new(),
        };
        self.modules.modules.insert(handle, module);
        for (name, bytes) in &image.globals {
            if let Err(code) = self.define_variable(handle, name, *bytes) {
                // Without its variables it is not loaded; what it got so far goes back.
                let _ = self.unload_module(handle);
                return Err(code);
            }
        }
        Ok(handle)
    }

    /// Gives a variable of a module its memory; one that it has already is left as it is.
    pub(crate) fn define_variable(&mut self, module: Handle, name: &str, bytes: u64) -> Answer<(u64, u64)> {
        let found = self.modules.modules.get(&module).ok_or(Code::INVALID_HANDLE)?;
        if let Some(&variable) = found.variables.get(name) {
            return Ok(variable);
        }
        let handle = found.context;
        let context = self.contexts.get(&handle).ok_or(Code::INVALID_CONTEXT)?;
        let (device, slice) = (context.device, Arc::clone(&context.slice));
        let address = match bytes {
            // An empty array has an address nowhere.
            0 => 0,
            _ => self
                .memory
                .allocate(&slice, (handle, device), bytes, Kind::Variable, false)?,
        };
        let found = self
            .modules
            .modules
            .get_mut(&module)
            .ok_or(Code::INVALID_HANDLE)?;
        found.variables.insert(name.to_owned(), (address, bytes));
        Ok((address, bytes))
    }

    pub(crate) fn variable(&self, module: Handle, name: &str) -> Answer<(u64, u64)> {
        let module = self.modules.modules.get(&module).ok_or(Code::INVALID_HANDLE)?;
        module.variables.get(name).copied().ok_or(Code::NOT_FOUND)
    }

    pub(crate) fn unload_module(&mut self, handle: Handle) -> Answer {
        let module = self.modules.modules.remove(&handle).ok_or(Code::INVALID_HANDLE)?;
        self.modules
            .functions
            .retain(|_, function| function.module != handle);
        for (address, bytes) in module.variables.into_values() {
            if bytes > 0
                && let Ok(allocation) = self.memory.remove(address, |kind| kind == Kind::Variable)
            {
                self.give_back(allocation);
            }
        }
        Ok(())
    }

    /// The kernels of a module: how many, and the names if it lists them.
    pub(crate) fn kernel_names(&self, module: Handle) -> Answer<Vec<String>> {
        let module = self.modules.modules.get(&module).ok_or(Code::INVALID_HANDLE)?;
        Ok(module.image.kernels.clone())
    }

    /// The handle of a kernel of a module; the same one each time.
    pub(crate) fn function_named(&mut self, module: Handle, name: &str) -> Answer<Handle> {
        let found = self
            .modules
            .modules
            .get_mut(&module)
            .ok_or(Code::INVALID_HANDLE)?;
        if let Some(&function) = found.functions.get(name) {
            return Ok(function);
        }
        if !has_kernel(&found.image, name) {
            return Err(Code::NOT_FOUND);
        }
        let (handle, name): (_, Arc<str>) = (self.handles.next(), name.into());
        found.functions.insert(Arc::clone(&name), handle);
        let function = Function {
            module,
            context: found.context,
            name,
            max_dynamic_shared: DEFAULT_SHARED,
            attributes: BTreeMap::new(),
        };
        self.modules.functions.insert(handle, function);
        Ok(handle)
    }

    pub(crate) fn load_library(&mut self, image: Image) -> Handle {
        let handle = self.handles.next();
        let library = Library {
            image: Arc::new(image),
            modules: HashMap::new(),
            kernels: HashMap::new(),
        };
        self.modules.libraries.insert(handle, library);
        handle
    }

    pub(crate) fn unload_library(&mut self, handle: Handle) -> Answer {
        let library = self
            .modules
            .libraries
            .remove(&handle)
            .ok_or(Code::INVALID_HANDLE)?;
        for module in library.modules.into_values() {
            // A context that is gone took its module with it.
            let _ = self.unload_module(module);
        }
        self.modules.kernels.retain(|_, kernel| kernel.library != handle);
        Ok(())
    }

    /// The handle of a kernel of a library; the same one each time.
    pub(crate) fn kernel_named(&mut self, library: Handle, name: &str) -> Answer<Handle> {
        let found = self
            .modules
            .libraries
            .get_mut(&library)
            .ok_or(Code::INVALID_HANDLE)?;
        if let Some(&kernel) = found.kernels.get(name) {
            return Ok(kernel);
        }
        if !has_kernel(&found.image, name) {
            return Err(Code::NOT_FOUND);
        }
        let (handle, name): (_, Arc<str>) = (self.handles.next(), name.into());
        found.kernels.insert(Arc::clone(&name), handle);
        self.modules.kernels.insert(handle, Kernel { library, name });
        Ok(handle)
    }

    /// How many kernels a library lists.
    pub(crate) fn kernel_count(&self, library: Handle) -> Answer<usize> {
        let library = self.modules.libraries.get(&library).ok_or(Code::INVALID_HANDLE)?;
        Ok(library.image.kernels.len())
    }

    /// The module that a library is in a context.
    pub(crate) fn library_module(&mut self, library: Handle, context: Handle) -> Answer<Handle> {
        let found = self.modules.libraries.get(&library).ok_or(Code::INVALID_HANDLE)?;
        if let Some(&module) = found.modules.get(&context) {
            return Ok(module);
        }
        let image = Arc::clone(&found.image);
        let module = self.load_module(context, image)?;
        if let Some(found) = self.modules.libraries.get_mut(&library) {
            found.modules.insert(context, module);
        }
        Ok(module)
    }

    /// The function that a handle means in a context: a function of it, or a kernel of a library.
    pub(crate) fn function(&mut self, handle: Handle, context: Handle) -> Answer<Handle> {
        if self.modules.functions.contains_key(&handle) {
            return Ok(handle);
        }
        let kernel = self
            .modules
            .kernels
            .get(&handle)
            .cloned()
            .ok_or(Code::INVALID_HANDLE)?;
        let module = self.library_module(kernel.library, context)?;
        self.function_named(module, &kernel.name)
    }

    /// All code of a context goes.
    pub(crate) fn unload_context(&mut self, context: Handle) {
        let modules = self
            .modules
            .modules
            .iter()
            .filter(|(_, module)| module.context == context);
        for handle in modules.map(|(&handle, _)| handle).collect::<Vec<_>>() {
            // It was found there a line ago.
            let _ = self.unload_module(handle);
        }
        for library in self.modules.libraries.values_mut() {
            library.modules.remove(&context);
        }
    }
}

fn has_kernel(image: &Image, name: &str) -> bool {
    !name.is_empty() && (image.open || image.kernels.iter().any(|kernel| kernel == name))
}
